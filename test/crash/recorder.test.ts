// Shows the crash tools on programs whose durable set is known: the recorder misses nothing, images
// keep what was synced, and a program that does not sync is found out.

import { execFile, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ClassicLevel } from "classic-level";
import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { isLong } from "../support/amount.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { createHistory } from "./history.ts";
import { buildImage, type Image, type NamesModel, writeImage } from "./image-builder.ts";
import { compareImages, drawPowerCut, formatPowerCut, readImage } from "./images.ts";
import { marksBefore, readRecord } from "./record-reader.ts";
import { createRecording, type Recording } from "./recorder.ts";

const run = promisify(execFile);
const program = (name: string): string =>
  fileURLToPath(new URL(`programs/${name}`, import.meta.url));

async function record(
  scratch: string,
  name: string,
  parameters: string[] = [],
  syncs: "obeyed" | "ignored" = "obeyed",
): Promise<Recording> {
  const root = join(scratch, "data");
  mkdirSync(root);
  const recording = createRecording(root, scratch, syncs);
  const { stdout } = await run(process.execPath, [program(name), root, ...parameters], {
    env: { ...process.env, ...recording.env },
  });
  expect(stdout).toBe("done\n");
  return recording;
}

function wholeImage(recording: Recording): Image {
  const operations = readRecord(recording.recordPath);
  return buildImage(createHistory(operations, recording.root), {
    cut: operations.length - 1,
    bytes: "all",
    namesModel: () => "strict",
    lostSectors: "zeros",
    random: new SeededRandom(1),
  });
}

describe("the recorder", () => {
  test("sees every change that Node makes to files", async () => {
    await withTemporaryFolder(async (scratch) => {
      const recording = await record(scratch, "file-calls.mjs");
      expect(compareImages(readImage(recording.root), wholeImage(recording))).toEqual([]);
    });
  });

  test("sees every change that LevelDB makes to files", async () => {
    await withTemporaryFolder(async (scratch) => {
      const recording = await record(scratch, "level.mjs", [join(scratch, "marks"), "2000"]);
      const differences = compareImages(readImage(recording.root), wholeImage(recording));
      // LevelDB prints its diary with calls that pass the shim by. Nothing depends on it.
      expect(differences.filter((line) => !/^LOG(\.old)?:/.test(line))).toEqual([]);
    });
  });

  test("leaves a readable record of a process that was killed", async () => {
    await withTemporaryFolder(async (scratch) => {
      const root = join(scratch, "data");
      mkdirSync(root);
      const recording = createRecording(root, scratch);
      const child = spawn(
        process.execPath,
        [program("journal.mjs"), root, recording.marksPath, "100000"],
        { env: { ...process.env, ...recording.env }, stdio: "ignore" },
      );
      const exited = new Promise((done) => child.once("exit", done));
      const marks = (): number => {
        try {
          return marksBefore(readRecord(recording.recordPath), 1e9).length;
        } catch {
          return 0; // not begun yet
        }
      };
      while (marks() < 50) await new Promise((done) => setTimeout(done, 20));
      child.kill("SIGKILL");
      await exited;
      expect(compareImages(readImage(root), wholeImage(recording))).toEqual([]);
    });
  });
});

/** The numbers of all whole lines in the journals of an image. */
function journalLines(image: Image): Set<number> {
  const found = new Set<number>();
  for (const [path, content] of image) {
    if (!path.startsWith("journal-") || content === "folder") continue;
    for (const line of content.toString("latin1").split("\n").slice(0, -1)) {
      const match = /^(\d+) (x*)$/.exec(line);
      if (match !== null && Number(match[1]) % 700 === match[2]?.length)
        found.add(Number(match[1]));
    }
  }
  return found;
}

/** Marked lines that are missing from images of drawn power cuts, one text per failing image. */
function missingLines(recording: Recording, images: number, model: NamesModel): string[] {
  const operations = readRecord(recording.recordPath);
  const history = createHistory(operations, recording.root);
  const failures: string[] = [];
  for (let seed = 0; seed < images; seed++) {
    const powerCut = drawPowerCut(operations, seed, () => model);
    const lines = journalLines(buildImage(history, powerCut));
    const missing = marksBefore(operations, powerCut.cut).filter((n) => !lines.has(Number(n)));
    if (missing.length === 0) continue;
    failures.push(`seed ${seed}: ${formatPowerCut(powerCut, operations)}: no line ${missing[0]}`);
  }
  return failures;
}

describe("images of a journal", () => {
  test("keep every line that was marked durable, in both models of names", async () => {
    await withTemporaryFolder(async (scratch) => {
      const recording = await record(scratch, "journal.mjs", [join(scratch, "marks"), "200"]);
      expect(missingLines(recording, 200, "strict")).toEqual([]);
      expect(missingLines(recording, 200, "ordered")).toEqual([]);
    });
  });

  test("find out the same program without its syncs", async () => {
    await withTemporaryFolder(async (scratch) => {
      const marks = join(scratch, "marks");
      const recording = await record(scratch, "journal.mjs", [marks, "200"], "ignored");
      expect(missingLines(recording, 50, "ordered").length).toBeGreaterThan(20);
    });
  });
});

const imageCount = isLong ? 400 : 40;

describe("images of a LevelDB", () => {
  const keysIn = async (folder: string): Promise<Set<string>> => {
    const db = new ClassicLevel(folder, { createIfMissing: false });
    await db.open();
    const keys = await db.keys().all();
    await db.close();
    return new Set(keys);
  };

  /** One text per image that does not open or lacks a marked key. */
  async function brokenStores(scratch: string, recording: Recording): Promise<string[]> {
    const operations = readRecord(recording.recordPath);
    const history = createHistory(operations, recording.root);
    const opened = operations.findIndex(({ kind }) => kind === "mark");
    const failures: string[] = [];
    for (let seed = 0; seed < imageCount; seed++) {
      const powerCut = drawPowerCut(operations, seed, () => "ordered", opened);
      const folder = join(scratch, `image-${seed}`);
      writeImage(buildImage(history, powerCut), folder);
      const said = `seed ${seed}: ${formatPowerCut(powerCut, operations)}`;
      try {
        const keys = await keysIn(folder);
        const marks = marksBefore(operations, powerCut.cut).slice(1);
        const missing = marks.find((key) => !keys.has(key));
        if (missing !== undefined) failures.push(`${said}: no key ${missing}`);
      } catch (error) {
        failures.push(`${said}: ${String((error as Error).cause ?? error)}`);
      }
    }
    return failures;
  }

  test("open, and hold every key that was put with sync", async () => {
    await withTemporaryFolder(async (scratch) => {
      const recording = await record(scratch, "level.mjs", [join(scratch, "marks"), "1500"]);
      expect(await brokenStores(scratch, recording)).toEqual([]);
    });
  });

  test("find out the same program without its syncs", async () => {
    await withTemporaryFolder(async (scratch) => {
      const marks = join(scratch, "marks");
      const recording = await record(scratch, "level.mjs", [marks, "1500"], "ignored");
      expect((await brokenStores(scratch, recording)).length).toBeGreaterThan(imageCount / 4);
    });
  });
});
