// `npm run docs`: writes the pages that are made from tables. Tests fail when one is out of date.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, setUp } from "./set-up.mjs";

setUp();
const { cliReference, errorReference } = await import("../dist/cli/reference.js");
const { configurationReference, configurationSchema, formatSchema, keyTable } = await import(
  "../dist/node/index.js"
);

const pages = {
  "docs/reference/configuration.md": configurationReference(keyTable),
  "docs/reference/cli.md": await cliReference(),
  "docs/reference/errors.md": errorReference(),
  "config/flagstone.schema.json": formatSchema(configurationSchema(keyTable)),
};

mkdirSync(join(root, "docs/reference"), { recursive: true });
for (const [path, text] of Object.entries(pages)) writeFileSync(join(root, path), text);
