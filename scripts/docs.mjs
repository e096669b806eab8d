// `npm run docs`: writes the pages that are made from tables. Tests fail when one is out of date.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root, setUp } from "./set-up.mjs";

setUp();
const { cliReference, errorReference, httpReference, metricsReference } = await import(
  "../dist/cli/reference.js"
);
const { configurationReference, configurationSchema, formatSchema, keyTable, ...node } =
  await import("../dist/node/index.js");

const pages = {
  "docs/reference/configuration.md": configurationReference(keyTable),
  "docs/reference/cli.md": await cliReference(),
  "docs/reference/errors.md": errorReference(),
  "docs/reference/http.md": httpReference(),
  "docs/reference/metrics.md": metricsReference(await metricsOfNode()),
  "config/flagstone.schema.json": formatSchema(configurationSchema(keyTable)),
};

mkdirSync(join(root, "docs/reference"), { recursive: true });
for (const [path, text] of Object.entries(pages)) writeFileSync(join(root, path), text);

/** What a fresh node answers: the names are those of its counters. */
async function metricsOfNode() {
  const dir = mkdtempSync(join(tmpdir(), "flagstone-docs-"));
  const running = await node.startNode(
    node.createSettings({
      data: { dir, ballast: "0" },
      listeners: { tcp: { port: 0 } },
      log: { segmentBytes: "1MiB" },
      admin: { enabled: true, port: 0 },
    }),
  );
  try {
    const response = await fetch(`http://127.0.0.1:${running.admin.port}/metrics`);
    return await response.text();
  } finally {
    await running.close();
    rmSync(dir, { recursive: true });
  }
}
