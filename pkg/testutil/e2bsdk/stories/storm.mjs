// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Fifty creates at once on a pool of forty, which is filled again meanwhile.
import assert from 'node:assert/strict'
import { RateLimitError, Sandbox } from 'e2b'

async function storm(options) {
  const results = await Promise.allSettled(Array.from({ length: 50 }, () => Sandbox.create(process.env.POOL, options)))
  for (const failed of results.filter((result) => result.status === 'rejected')) {
    assert.ok(failed.reason instanceof RateLimitError, String(failed.reason))
  }
  return results.filter((result) => result.status === 'fulfilled').map((result) => result.value)
}

// As the SDK says it by itself to the user, and with its own retries, given time.
const first = await storm({ retries: 0 })
assert.ok(first.length >= 40, `${first.length} were made of 40 in stock`)
const patient = { retries: 300, requestTimeoutMs: 300_000 }
const second = await storm(patient)
assert.equal(second.length, 50)

const made = [...first, ...second]
assert.equal(new Set(made.map((sandbox) => sandbox.sandboxId)).size, made.length, 'an id came twice')
const infos = await Promise.all(made.map((sandbox) => sandbox.getInfo(patient)))
assert.equal(new Set(infos.map((info) => info.metadata['e2b.agents.kruise.io/sandbox-resource'])).size, made.length, 'a sandbox came twice')
assert.deepEqual(await Promise.all(made.map((sandbox) => sandbox.kill(patient))), made.map(() => true))
console.log(`${first.length} of 50 without retries`)
