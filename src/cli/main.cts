#!/usr/bin/env node
// The launcher's first file. CommonJS on purpose, and it may import nothing: libuv sizes its thread
// pool at the first use, and loading any ES module uses it. LevelDB and fdatasync share that pool;
// with Node's four threads a few slow syncs would hold up every read.
// Whoever asks for more threads gets them.

const threadsMin = 8;

if (!(Number(process.env.UV_THREADPOOL_SIZE) >= threadsMin)) {
  process.env.UV_THREADPOOL_SIZE = String(threadsMin);
}

void import("./entry.ts");
