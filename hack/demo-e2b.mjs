// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// What a user of the E2B SDK does with sandboxes, each step with the time that it took.
// hack/demo-e2b.sh runs it.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

async function step(what, work) {
  const began = performance.now()
  const result = await work()
  console.log(`${what.padEnd(44)} ${(performance.now() - began).toFixed(1).padStart(8)} ms`)
  return result
}

const sandbox = await step('Sandbox.create', () => Sandbox.create('base', { metadata: { user: 'demo' }, timeoutMs: 60_000 }))
console.log(`  ${sandbox.sandboxId}`)
const info = await step('getInfo', () => Sandbox.getInfo(sandbox.sandboxId))
assert.equal(info.state, 'running')
if (process.env.SANDBOXES === 'processes') {
  const run = await step("commands.run('echo hello')", () => sandbox.commands.run('echo hello'))
  assert.equal(run.stdout, 'hello\n')
  await step('files.write', () => sandbox.files.write('greeting.txt', 'hello'))
  assert.equal(await step('files.read', () => sandbox.files.read('greeting.txt')), 'hello')
  assert.equal(await sandbox.isRunning(), true)
}
const found = await step('list, by metadata', () => Sandbox.list({ query: { metadata: { user: 'demo' } } }).nextItems())
assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
await step('setTimeout', () => sandbox.setTimeout(120_000))
assert.equal(await step('pause', () => Sandbox.pause(sandbox.sandboxId)), true)
assert.equal(await step('pause, once more', () => Sandbox.pause(sandbox.sandboxId)), false)
const again = await step('connect, which resumes it', () => Sandbox.connect(sandbox.sandboxId))
assert.equal(again.sandboxId, sandbox.sandboxId)
if (process.env.SANDBOXES === 'processes') {
  assert.equal((await step('commands.run, after the pause', () => again.commands.run('echo again'))).stdout, 'again\n')
}
const four = await step('four more at once', () => Promise.all([1, 2, 3, 4].map(() => Sandbox.create('base'))))
assert.equal(new Set(four.map((one) => one.sandboxId)).size, 4)
for (const one of [sandbox, ...four]) {
  assert.equal(await Sandbox.kill(one.sandboxId), true)
}
assert.equal(await step('kill of one that is gone', () => Sandbox.kill(sandbox.sandboxId)), false)
