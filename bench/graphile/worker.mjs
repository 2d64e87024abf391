// Started by the bench, with a task:
//   migrate   makes the schema
//   work      works jobs until SIGTERM: signs each payload, posts it to ENDPOINT, and
//             writes "+N" for N jobs that were delivered since the line before
import { createHmac } from "node:crypto";
import { Agent, request } from "node:http";
import { run, runMigrations } from "graphile-worker";

const { DATABASE_URL, DATABASE, ENDPOINT, SIGNING_KEY, CONCURRENCY, PROFILE } = process.env;
const url = new URL(DATABASE_URL);
url.pathname = "/" + DATABASE;
const connectionString = url.href;

if (process.argv[2] === "migrate") {
  await runMigrations({ connectionString });
  process.exit(0);
}

const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
let delivered = 0;

function post(payload) {
  const body = JSON.stringify(payload);
  const id = "msg_" + payload.seq;
  const at = Math.floor(Date.now() / 1000);
  const signature = createHmac("sha256", SIGNING_KEY).update(`${id}.${at}.${body}`).digest("base64");
  return new Promise((resolve, reject) => {
    const headers = {
      "content-type": "application/json", "content-length": Buffer.byteLength(body),
      "webhook-id": id, "webhook-timestamp": at, "webhook-signature": "v1," + signature,
    };
    const sent = request(ENDPOINT, { method: "POST", agent, headers }, (response) => {
      response.resume();
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode < 200 || response.statusCode > 299) return reject(new Error(`the endpoint answers ${response.statusCode}`));
        delivered++;
        resolve();
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

function report() {
  if (delivered > 0) process.stdout.write(`+${delivered}\n`);
  delivered = 0;
}

const concurrentJobs = Number(CONCURRENCY);
const worker = { connectionString, concurrentJobs, maxPoolSize: Math.min(concurrentJobs + 1, 100) };
if (PROFILE === "performance") {
  // worker.graphile.org/docs/performance
  Object.assign(worker, { localQueue: { size: Math.max(500, concurrentJobs) }, completeJobBatchDelay: 0, failJobBatchDelay: 0 });
}
const runner = await run({ preset: { worker }, taskList: { bench: post }, noHandleSignals: true });
setInterval(report, 20);
process.on("SIGTERM", async () => {
  await runner.stop();
  report();
  process.exit(0);
});
