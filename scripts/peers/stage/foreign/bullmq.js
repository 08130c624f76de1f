// BullMQ answers the phases of ../../rival/serve.go: one line in, one line of JSON out.
'use strict';
const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const tasks = +process.env.PEERS_TASKS, concurrency = +process.env.PEERS_WORKERS;
const rate = +process.env.PEERS_RATE, seconds = +process.env.PEERS_SECONDS;
const [host, port] = process.env.PEERS_REDIS.split(':');
const connection = { host, port: +port, maxRetriesPerRequest: null };
const options = { removeOnComplete: true }; // its fastest: a finished job leaves nothing behind
const chunk = 1000, chunksAtOnce = 4, arriveLimit = 30000;
const pad = 'x'.repeat(180);
const now = () => performance.timeOrigin + performance.now(); // milliseconds
const wait = ms => new Promise(done => setTimeout(done, ms));

const admin = new IORedis(connection);
const queue = new Queue('t', { connection });

async function prepare() {
  await queue.waitUntilReady();
  await admin.flushall();
  return {};
}

async function submit() {
  const began = now();
  let pending = [];
  for (let i = 0; i < tasks; i += chunk) {
    const jobs = Array.from({ length: Math.min(chunk, tasks - i) }, () => ({ name: 'noop', data: { t: 0, pad }, opts: options }));
    pending.push(queue.addBulk(jobs));
    if (pending.length >= chunksAtOnce) await Promise.all(pending.splice(0));
  }
  await Promise.all(pending);
  return { tasks, seconds: (now() - began) / 1000 };
}

async function drain() {
  let seen = 0;
  const began = now();
  const worker = new Worker('t', async () => {}, { connection, concurrency });
  worker.on('error', e => console.error(e));
  await new Promise(done => worker.on('completed', () => { if (++seen === tasks) done(); }));
  const took = (now() - began) / 1000;
  await worker.close();
  const left = await queue.getJobCounts('wait', 'active', 'prioritized');
  if (Object.values(left).some(n => n > 0)) throw new Error('left ' + JSON.stringify(left));
  return { tasks, seconds: took };
}

async function latency() {
  const late = [], total = rate * (seconds + 1);
  const worker = new Worker('t', async job => { late.push(now() - job.data.t); }, { connection, concurrency });
  worker.on('error', e => console.error(e));
  await worker.waitUntilReady();
  const start = now() + 500;
  for (let i = 0; i < total; await wait(1)) {
    for (; i < total && start + i * 1000 / rate <= now(); i++) queue.add('noop', { t: start + i * 1000 / rate, pad }, options);
  }
  for (const end = now() + arriveLimit; late.length < total && now() < end;) await wait(10);
  await worker.close();
  const counted = late.slice(rate).sort((a, b) => a - b);
  const at = p => counted[Math.max(0, Math.ceil(counted.length * p) - 1)];
  return {
    tasks: total, sentP50: at(0.5), sentP99: at(0.99), sentMax: at(1),
    note: late.length < total ? `${total - late.length} of ${total} never arrived` : '',
  };
}

const phases = { prepare, submit, drain, latency };
(async () => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const reply = await Promise.resolve().then(() => phases[line]()).catch(e => ({ error: String(e) }));
    process.stdout.write(JSON.stringify(reply) + '\n');
  }
  process.exit(0);
})();
