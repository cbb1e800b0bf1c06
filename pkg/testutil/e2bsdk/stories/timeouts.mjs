// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Sandboxes that live for ever, and those that are paused at their timeout.
import assert from 'node:assert/strict'
import { Sandbox, SandboxError } from 'e2b'

const day = 24 * 3600 * 1000
const never = await Sandbox.create(process.env.POOL, { metadata: { 'e2b.agents.kruise.io/never-timeout': 'true' } })
const far = (await never.getInfo()).endAt
assert.ok(far - Date.now() > 365 * day, `it ends at ${far}`)
await never.setTimeout(60_000) // has no effect
assert.ok((await never.getInfo()).endAt - Date.now() > 365 * day)
assert.equal(await never.kill(), true)

const paused = await Sandbox.create(process.env.POOL, {
  timeoutMs: 120_000, lifecycle: { onTimeout: 'pause', autoResume: true },
})
const info = await paused.getInfo()
assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
const left = info.endAt - info.startedAt
assert.ok(left > 115_000 && left < 125_000, `it ends after ${left} ms`)
assert.equal(await paused.kill(), true)

const short = await Sandbox.create(process.env.POOL, { timeoutMs: 29_000 })
await Sandbox.connect(short.sandboxId, { timeoutMs: 0 }) // leaves its end
assert.equal(await short.kill(), true)
await assert.rejects(Sandbox.create(process.env.POOL, { timeoutMs: 31 * day }), SandboxError)
await assert.rejects(Sandbox.create('no-such-template'), (error) => {
  assert.ok(error instanceof SandboxError && error.message.startsWith('400:'), String(error))
  assert.match(error.message, /no-such-template/)
  return true
})
await assert.rejects(Sandbox.create(process.env.POOL, { metadata: { 'e2b.agents.kruise.io/frob': 'x' } }), SandboxError)
