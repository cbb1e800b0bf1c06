// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// What wrong and revoked keys, and those of other teams, do not get.
import assert from 'node:assert/strict'
import { AuthenticationError, Sandbox, SandboxNotFoundError } from 'e2b'

const url = process.env.E2B_API_URL
const missing = `${process.env.TEAM}--eaaaaaaaaaaaaa`
const call = (method, path, key, body) => fetch(url + path, {
  method, headers: { 'X-API-Key': key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
})

const wrong = { apiKey: 'e2b_' + '0'.repeat(64) }
await assert.rejects(Sandbox.create(process.env.POOL, wrong), AuthenticationError)
await assert.rejects(Sandbox.list(wrong).nextItems(), AuthenticationError)
await assert.rejects(Sandbox.kill(missing, wrong), AuthenticationError)

// A key that is revoked is refused from then on, though its sandbox lives on.
const answer = await call('POST', '/api-keys', process.env.E2B_API_KEY, { name: 'to be revoked' })
assert.equal(answer.status, 201)
const { id, key } = await answer.json()
assert.match(key, /^e2b_[0-9a-f]{64}$/)
const sandbox = await Sandbox.create(process.env.POOL, { apiKey: key })
assert.equal((await call('DELETE', `/api-keys/${id}`, process.env.E2B_API_KEY)).status, 204)
await assert.rejects(sandbox.getInfo(), AuthenticationError)
await assert.rejects(Sandbox.create(process.env.POOL, { apiKey: key }), AuthenticationError)
assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'running')

// Another team sees nothing of it: neither whether it is there, nor that it is not its own.
const other = { apiKey: process.env.OTHER_KEY }
const mine = sandbox.sandboxId
await assert.rejects(Sandbox.getInfo(mine, other), SandboxNotFoundError)
await assert.rejects(Sandbox.connect(mine, other), SandboxNotFoundError)
await assert.rejects(Sandbox.setTimeout(mine, 60_000, other), SandboxNotFoundError)
await assert.rejects(Sandbox.pause(mine, other), SandboxNotFoundError)
assert.equal(await Sandbox.kill(mine, other), false)
assert.deepEqual(await Sandbox.list(other).nextItems(), [])
const told = async (id) => (await call('GET', `/sandboxes/${id}`, other.apiKey)).text()
assert.equal((await told(mine)).replaceAll(mine, ''), (await told(missing)).replaceAll(missing, ''))

assert.equal((await Sandbox.getInfo(mine)).state, 'running')
assert.equal(await Sandbox.kill(mine), true)
