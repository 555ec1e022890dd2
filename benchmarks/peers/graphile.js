// graphile-worker as a peer: `setup`, `enqueue DUE_S COUNT` (prints jobs a second), `work`.
// A handler appends its start time (a little-endian double of seconds) to $MARKS/<pid>.bin.
"use strict";
const fs = require("fs");
const { Pool } = require("pg");
const { run, makeWorkerUtils, runMigrations } = require("graphile-worker");

const server = process.env.PEER_URL;
const connectionString = `${server}/peer`;
const BATCH = 1000;

async function setup() {
  const pool = new Pool({ connectionString: `${server}/postgres` });
  await pool.query("drop database if exists peer with (force)");
  await pool.query("create database peer");
  await pool.end();
  await runMigrations({ connectionString });
}

async function enqueue(dueSeconds, count) {
  const utils = await makeWorkerUtils({ connectionString });
  const runAt = new Date(dueSeconds * 1000);
  const text = "x".repeat(480);
  const began = Date.now();
  for (let start = 0; start < count; start += BATCH) {
    const jobs = [];
    for (let i = start; i < Math.min(start + BATCH, count); i++) {
      jobs.push({ identifier: "noop", payload: { i, text }, runAt });
    }
    await utils.addJobs(jobs);
  }
  console.log(count / ((Date.now() - began) / 1000));
  await utils.release();
}

async function work() {
  let file = null;
  const mark = () => {
    if (file === null) file = fs.openSync(`${process.env.MARKS}/${process.pid}.bin`, "a");
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleLE(Date.now() / 1000);
    fs.writeSync(file, bytes);
  };
  await run({
    connectionString,
    concurrency: 24,
    pollInterval: 200,
    preset: {
      worker: {
        localQueue: { size: 500, ttl: 60000 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        maxPoolSize: 12,
      },
    },
    taskList: { noop: async () => mark() },
  });
}

const [mode, due, count] = process.argv.slice(2);
const modes = { setup, enqueue: () => enqueue(Number(due), Number(count)), work };
modes[mode]().then(() => mode === "work" || process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
