// A child of raft:mutants: runs conversations and seeds on a core of which one file is replaced.
// Takes { file, text, from, to } and answers { by }: what noticed the change, or nothing.
//
// The modules of core, runner and simulator are made anew for each check from the built JavaScript;
// everything below them is loaded once. Needs --experimental-vm-modules.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import vm from "node:vm";

const root = fileURLToPath(new URL("..", import.meta.url));
const room = join(root, "dist/raft");
const conversations = join(root, "test/sim/raft");
const fresh = /^(core|script|sim)\/|^(codec|errors)\.js$/;
const steps = 1500;

const texts = new Map();
const shared = new Map();
const scripts = readdirSync(conversations)
  .filter((name) => name.endsWith(".txt"))
  .map((name) => [name, readFileSync(join(conversations, name), "utf8")]);

process.on("message", async (request) => {
  const by = await check(request);
  process.send({ by });
});

async function check({ file, text, from, to }) {
  let raft;
  try {
    raft = await load(join(room, "core", file), text);
  } catch {
    return "load";
  }
  if (from === 1) {
    for (const [, script] of scripts) {
      if (raft.runConversation(script).mismatches.length > 0) return "conversations";
    }
  }
  for (let seed = from; seed <= to; seed++) {
    if (raft.simulate({ seed, steps }).failure) return "seeds";
  }
  return undefined;
}

async function load(mutated, text) {
  const modules = new Map();
  const find = (path) => {
    let module = modules.get(path);
    if (module === undefined) {
      module = fresh.test(path.slice(room.length + 1))
        ? new vm.SourceTextModule(path === mutated ? text : read(path), { identifier: path })
        : share(path);
      modules.set(path, module);
    }
    return module;
  };
  const link = (specifier, { identifier }) => find(resolve(dirname(identifier), specifier));
  const parts = ["script/conversation.js", "sim/simulation.js"];
  const exported = {};
  for (const part of parts) {
    const module = await find(join(room, part));
    await module.link(link);
    await module.evaluate();
    Object.assign(exported, module.namespace);
  }
  return exported;
}

function read(path) {
  if (!texts.has(path)) texts.set(path, readFileSync(path, "utf8"));
  return texts.get(path);
}

// Loaded by Node itself, once.
async function share(path) {
  let namespace = shared.get(path);
  if (namespace === undefined) {
    namespace = await import(path.startsWith("/") ? pathToFileURL(path).href : path);
    shared.set(path, namespace);
  }
  const names = Object.keys(namespace);
  return new vm.SyntheticModule(
    names,
    function set() {
      for (const name of names) this.setExport(name, namespace[name]);
    },
    { identifier: path },
  );
}
