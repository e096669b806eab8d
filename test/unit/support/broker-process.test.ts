import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { startBroker, startRefused } from "../../support/broker-process.ts";
import { RawClient } from "../../support/raw-client.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

const main = fileURLToPath(new URL("../../support/toy-broker.mjs", import.meta.url));
const withFault = (TOY_FAULT: string) => ({ env: { TOY_FAULT } });

describe("a broker process", () => {
  test("is ready when it says so, and ends on SIGTERM", async () => {
    await withTemporaryFolder(async (folder) => {
      const broker = await startBroker({ main, dataDir: join(folder, "data") });
      expect(broker.port).toBeGreaterThan(0);
      expect(broker.adminPort).toBeUndefined();
      expect(broker.startLines).toHaveLength(2);
      expect(broker.stderr()).toContain("toy broker");
      expect(await broker.stop()).toEqual({ code: 0, signal: null });
    });
  });

  test("is killed without a chance to tidy up", async () => {
    await withTemporaryFolder(async (folder) => {
      const broker = await startBroker({ main, dataDir: folder });
      expect(await broker.kill()).toEqual({ code: null, signal: "SIGKILL" });
      expect(await broker.exited).toEqual({ code: null, signal: "SIGKILL" });
    });
  });

  test("that ends before it is ready fails with its exit and its output", async () => {
    await withTemporaryFolder(async (folder) => {
      const missing = join(folder, "nothing.mjs");
      const start = startBroker({ main: missing, dataDir: folder });
      await expect(start).rejects.toThrow(/exit code 1\)\n[\s\S]*Cannot find module/);
    });
  });

  test("that is not ready in time is killed", async () => {
    await withTemporaryFolder(async (folder) => {
      const start = startBroker({
        main,
        dataDir: folder,
        readyWithinMs: 300,
        ...withFault("mute"),
      });
      await expect(start).rejects.toThrow("not ready within 300 ms");
    });
  });

  test("that was ready in time is left alone when that time has passed", async () => {
    await withTemporaryFolder(async (folder) => {
      const readyWithinMs = 3000;
      await using broker = await startBroker({ main, dataDir: folder, readyWithinMs });
      const passed = new Promise((resolve) => setTimeout(resolve, readyWithinMs + 200, "passed"));
      expect(await Promise.race([broker.exited, passed])).toBe("passed");
    });
  });

  test("that ignores SIGTERM is killed, and that is an error", async () => {
    await withTemporaryFolder(async (folder) => {
      const broker = await startBroker({ main, dataDir: folder, ...withFault("deaf") });
      await expect(broker.stop(200)).rejects.toThrow("did not stop within 200 ms");
      expect((await broker.exited).signal).toBe("SIGKILL");
    });
  });

  test("that should refuse to start is told apart from one that starts", async () => {
    await withTemporaryFolder(async (folder) => {
      const refused = await startRefused({ main: join(folder, "nothing.mjs"), dataDir: folder });
      expect(refused.exit.code).toBe(1);
      expect(refused.stderr).toContain("Cannot find module");
      await expect(startRefused({ main, dataDir: folder })).rejects.toThrow("should refuse");
    });
  });
});

describe("a raw client on a launched broker", () => {
  test("sees a message that was published before a kill, after the restart", async () => {
    await withTemporaryFolder(async (dataDir) => {
      const first = await startBroker({ main, dataDir });
      const client = await RawClient.open(first.port, 4);
      await client.connect({ clientId: "a", clean: false });
      client.send("82 06 0001 0001 61 01");
      await client.expectBytes("90 03 0001 01");
      client.send("32 06 0001 61 0007 78");
      await client.expectBytes("40 02 0007");
      await first.kill();
      await client.expectClosed();

      await using second = await startBroker({ main, dataDir });
      await using again = await RawClient.open(second.port, 4);
      const connack = await again.connect({ clientId: "a", clean: false });
      expect(connack.sessionPresent).toBe(true);
      const publish = await again.expect("publish");
      expect(publish.topic).toBe("a");
      expect(publish.payload.toString()).toBe("x");
      await again.expectNothing();
    });
  });
});
