// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// One sandbox from its create to its end, by the methods that need nothing in it.
import assert from 'node:assert/strict'
import { Sandbox, SandboxNotFoundError } from 'e2b'

const second = 1000
const sandbox = await Sandbox.create(process.env.POOL, { metadata: { purpose: 'lifecycle' } })
assert.match(sandbox.sandboxId, /^[a-z0-9-]+--e[a-z2-7]{13}$/)
assert.ok(sandbox.sandboxId.startsWith(`${process.env.TEAM}--e`), sandbox.sandboxId)

const info = await sandbox.getInfo()
assert.equal(info.sandboxId, sandbox.sandboxId)
assert.equal(info.templateId, process.env.POOL)
assert.equal(info.state, 'running')
assert.equal(info.metadata.purpose, 'lifecycle')
assert.ok(info.cpuCount >= 1 && info.memoryMB >= 1, 'parts of a CPU count as a whole one')
const lives = info.endAt - info.startedAt
assert.ok(lives >= 295 * second && lives <= 305 * second, `without a timeout it lives for ${lives} ms`)

await sandbox.setTimeout(1000 * second)
const longer = await sandbox.getInfo()
assert.ok(longer.endAt - info.endAt > 600 * second, 'the timeout begins anew')
assert.deepEqual(longer.startedAt, info.startedAt)
await sandbox.setTimeout(100 * second)
assert.ok((await sandbox.getInfo()).endAt < info.endAt, 'it can be made shorter')

// It never gets shorter by being connected to.
await sandbox.setTimeout(1000 * second)
await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60 * second })
assert.ok((await sandbox.getInfo()).endAt > info.endAt, 'connect made it shorter')

assert.equal(await sandbox.isRunning(), true)
assert.equal(await sandbox.pause(), true)
assert.equal((await sandbox.getInfo()).state, 'paused')
assert.equal(await sandbox.isRunning(), false)
assert.equal(await sandbox.pause(), false, 'it is paused already')
await assert.rejects(sandbox.setTimeout(100 * second))

const again = await Sandbox.connect(sandbox.sandboxId)
assert.equal(again.sandboxId, sandbox.sandboxId)
assert.equal((await again.getInfo()).state, 'running')
assert.equal(await again.isRunning(), true)

assert.equal(await again.kill(), true)
assert.equal(await again.kill(), false, 'it is gone already')
assert.equal(await again.isRunning(), false)
await assert.rejects(again.getInfo(), SandboxNotFoundError)
await assert.rejects(again.setTimeout(100 * second), SandboxNotFoundError)
await assert.rejects(Sandbox.connect(again.sandboxId), SandboxNotFoundError)
await assert.rejects(again.pause(), SandboxNotFoundError)
