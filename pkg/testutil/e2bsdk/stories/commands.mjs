// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Commands and files, by the headers that the SDK sends to E2B_SANDBOX_URL.
import assert from 'node:assert/strict'
import { CommandExitError, FileNotFoundError, Sandbox } from 'e2b'

const sandbox = await Sandbox.create(process.env.POOL, { envs: { MODE: 'from the create' } })

const said = await sandbox.commands.run('echo hello $MODE $MORE; echo aside >&2', { envs: { MORE: 'and more' } })
assert.equal(said.stdout, 'hello from the create and more\n')
assert.equal(said.stderr, 'aside\n')
assert.equal(said.exitCode, 0)
await assert.rejects(sandbox.commands.run('echo bad >&2; exit 7'), (error) => {
  assert.ok(error instanceof CommandExitError, String(error))
  assert.equal(error.exitCode, 7)
  assert.equal(error.stderr, 'bad\n')
  return true
})

const text = 'line\nü ☃\n'
const written = await sandbox.files.write('/data/a b.txt', text)
assert.equal(written.path, '/data/a b.txt')
assert.equal(await sandbox.files.read('/data/a b.txt'), text)
assert.equal((await sandbox.commands.run('cat /data/a b.txt')).stdout, text)
const bytes = Uint8Array.from({ length: 1 << 20 }, (_, i) => i * i % 251)
await sandbox.files.write('/data/bytes', bytes.buffer)
assert.deepEqual(await sandbox.files.read('/data/bytes', { format: 'bytes' }), bytes)
await sandbox.files.write([{ path: '/data/more/1', data: 'one' }, { path: '/data/more/2', data: 'two' }])
assert.deepEqual((await sandbox.files.list('/data')).map((entry) => entry.name), ['a b.txt', 'bytes', 'more'])
assert.equal((await sandbox.files.getInfo('/data/bytes')).size, bytes.length)
assert.equal(await sandbox.files.makeDir('/data/empty'), true)
assert.equal(await sandbox.files.makeDir('/data/empty'), false)
await sandbox.files.rename('/data/more/1', '/data/empty/1')
assert.equal(await sandbox.files.read('/data/empty/1'), 'one')
assert.equal(await sandbox.files.exists('/data/more/1'), false)
await sandbox.files.remove('/data/empty')
await assert.rejects(sandbox.files.read('/data/empty/1'), FileNotFoundError)

// The command goes on only when its first output has arrived here.
let answered
const result = await sandbox.commands.run('echo first; await /data/go; echo second', {
  onStdout: (output) => { answered ??= output === 'first\n' && sandbox.files.write('/data/go', '') },
})
assert.ok(answered, 'no output came')
assert.equal(result.stdout, 'first\nsecond\n')

const handle = await sandbox.commands.run('await /data/never', { background: true })
assert.deepEqual((await sandbox.commands.list()).map((one) => one.pid), [handle.pid])
assert.equal(await sandbox.commands.kill(handle.pid), true)
await assert.rejects(handle.wait(), CommandExitError)
assert.equal(await sandbox.commands.kill(handle.pid), false)

assert.equal(await sandbox.kill(), true)
// The gateway may hear of it after its answer, when much else is going on.
while (await sandbox.commands.run('echo late').then(() => true, () => false));
