// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// The methods of an older SDK, whose name in package.json is in SDK. DIR is an empty folder.
import assert from 'node:assert/strict'

const { Sandbox } = await import(process.env.SDK)
const api = process.env.E2B_API_URL

// 1.13 has no setting for the URL of the API, only a domain, and that is https. Here its
// requests go to the gateway all the same; they are otherwise as it makes them.
const options = {}
if (process.env.SDK === 'e2b-1-13') {
  const real = globalThis.fetch
  options.domain = 'sdk.test'
  globalThis.fetch = async (input, init) => {
    const request = new Request(input, init)
    const { host, pathname, search } = new URL(request.url)
    assert.ok(host === 'api.sdk.test' || host.endsWith('.sdk.test'), host)
    const body = request.body ? await request.arrayBuffer() : undefined
    return real(api + pathname + search, { method: request.method, headers: request.headers, body, signal: request.signal })
  }
}

const metadata = { 'team.io/sdk': process.env.SDK, 'team.io/odd': 'a b&c=d/ü' }
const sandbox = await Sandbox.create(process.env.POOL, { ...options, metadata, timeoutMs: 120_000 })
const info = await Sandbox.getInfo(sandbox.sandboxId, options)
assert.equal(info.sandboxId, sandbox.sandboxId)
assert.equal(info.metadata['team.io/odd'], metadata['team.io/odd'])
assert.ok(info.endAt > info.startedAt)

let listed = await Sandbox.list({ ...options, query: { metadata } })
if (!Array.isArray(listed)) { // since 2.0 it has pages
  assert.equal(listed.hasNext, true)
  listed = await listed.nextItems()
}
assert.deepEqual(listed.map((one) => one.sandboxId), [sandbox.sandboxId])

await sandbox.setTimeout(1000_000)
assert.ok((await Sandbox.getInfo(sandbox.sandboxId, options)).endAt > info.endAt)

const pause = sandbox.pause ?? sandbox.betaPause // 1.13 has neither
if (pause) {
  await pause.call(sandbox)
  assert.equal((await Sandbox.getInfo(sandbox.sandboxId, options)).state, 'paused')
  assert.equal(await Sandbox[sandbox.pause ? 'pause' : 'betaPause'](sandbox.sandboxId), false, 'it is paused already')
}
const connected = await Sandbox.connect(sandbox.sandboxId, options)
assert.equal(connected.sandboxId, sandbox.sandboxId)
assert.equal((await Sandbox.getInfo(sandbox.sandboxId, options)).state ?? 'running', 'running')

// Commands reach envd with what each of them sends. 1.13 names the sandbox in the host
// alone, which is lost here.
if (process.env.SDK !== 'e2b-1-13') {
  // What is in the home folder of the user of this machine is of no concern.
  assert.equal((await connected.commands.run('echo hello', { envs: { HOME: process.env.DIR } })).stdout, 'hello\n')
}

assert.equal(await Sandbox.kill(sandbox.sandboxId, options), true)
assert.equal(await Sandbox.kill(sandbox.sandboxId, options), false)
