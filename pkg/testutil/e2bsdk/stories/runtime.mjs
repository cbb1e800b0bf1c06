// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// All that the SDK asks of the daemon in a sandbox, by the headers that it sends to
// E2B_SANDBOX_URL. DIR is an empty folder for its files.
import assert from 'node:assert/strict'
import { CommandExitError, FileNotFoundError, Sandbox, TimeoutError } from 'e2b'

const dir = process.env.DIR
// What is in the home folder of the user of this machine is of no concern.
const sandbox = await Sandbox.create(process.env.POOL, { envs: { MODE: 'from the create', HOME: dir } })
assert.equal(await sandbox.isRunning(), true)

const said = await sandbox.commands.run('echo hello $MODE $MORE; echo aside >&2; pwd', { envs: { MORE: 'and more' }, cwd: dir })
assert.equal(said.stdout, `hello from the create and more\n${dir}\n`)
assert.equal(said.stderr, 'aside\n')
assert.equal(said.exitCode, 0)
await assert.rejects(sandbox.commands.run('echo bad >&2; exit 7'), (error) => {
  assert.ok(error instanceof CommandExitError, String(error))
  assert.equal(error.exitCode, 7)
  assert.equal(error.stderr, 'bad\n')
  return true
})
await assert.rejects(sandbox.commands.run('sleep 600', { timeoutMs: 1000 }), TimeoutError)

// The command continues only when its first output has arrived here.
let answered
const streamed = await sandbox.commands.run(`mkfifo ${dir}/go; echo first; read x <${dir}/go; echo second`, {
  onStdout: (output) => { answered ??= output === 'first\n' && sandbox.commands.run(`echo go >${dir}/go`) },
})
assert.ok(await answered, 'no output came')
assert.equal(streamed.stdout, 'first\nsecond\n')
const large = await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
assert.equal(large.stdout, 'x'.repeat(3000000))

// Processes outlive their connection, read what is sent to them, and are killed.
const reader = await sandbox.commands.run('read line; echo "[$line]"; exec sleep 600', { background: true, stdin: true })
assert.deepEqual((await sandbox.commands.list()).map((one) => one.pid), [reader.pid])
await reader.disconnect()
const read = new Promise((resolve) => { sandbox.commands.connect(reader.pid, { onStdout: resolve }).then((h) => h.wait().catch(() => {})) })
while (!(await Promise.race([read, new Promise((resolve) => setTimeout(resolve, 100))]))) {
  await sandbox.commands.sendStdin(reader.pid, 'typed\n')
}
assert.equal(await read, '[typed]\n')
assert.equal(await sandbox.commands.kill(reader.pid), true)
assert.equal(await sandbox.commands.kill(reader.pid), false)

const text = 'line\nü ☃\n'
const written = await sandbox.files.write(`${dir}/data/a "b".txt`, text)
assert.equal(written.path, `${dir}/data/a "b".txt`)
assert.equal(await sandbox.files.read(`${dir}/data/a "b".txt`), text)
assert.equal((await sandbox.commands.run(`cat '${dir}/data/a "b".txt'`)).stdout, text)
const bytes = Uint8Array.from({ length: 5 << 20 }, (_, i) => i * i % 251)
await sandbox.files.write(`${dir}/data/bytes`, bytes.buffer)
assert.deepEqual(await sandbox.files.read(`${dir}/data/bytes`, { format: 'bytes' }), bytes)
await sandbox.files.write(`${dir}/data/nothing`, '')
assert.equal(await sandbox.files.read(`${dir}/data/nothing`), '')
await sandbox.files.write([{ path: `${dir}/data/more/1`, data: 'one' }, { path: `${dir}/data/more/2`, data: 'two' }])
assert.deepEqual((await sandbox.files.list(`${dir}/data`)).map((entry) => [entry.name, entry.type]),
  [['a "b".txt', 'file'], ['bytes', 'file'], ['more', 'dir'], ['nothing', 'file']])
assert.equal((await sandbox.files.getInfo(`${dir}/data/bytes`)).size, bytes.length)
assert.equal(await sandbox.files.makeDir(`${dir}/data/empty`), true)
assert.equal(await sandbox.files.makeDir(`${dir}/data/empty`), false)
await sandbox.files.rename(`${dir}/data/more/1`, `${dir}/data/empty/1`)
assert.equal(await sandbox.files.read(`${dir}/data/empty/1`), 'one')
assert.equal(await sandbox.files.exists(`${dir}/data/more/1`), false)
await sandbox.files.remove(`${dir}/data/empty`)
await assert.rejects(sandbox.files.read(`${dir}/data/empty/1`), FileNotFoundError)

const events = []
const watch = await sandbox.files.watchDir(dir, (event) => { events.push(`${event.type} ${event.name}`) }, { recursive: true })
await sandbox.files.write(`${dir}/data/seen`, 'x')
await sandbox.commands.run(`mkdir -p ${dir}/data/new/er; touch ${dir}/data/new/er/file; rm ${dir}/data/seen`)
const wanted = ['create data/seen', 'write data/seen', 'remove data/seen', 'create data/new', 'create data/new/er', 'create data/new/er/file']
while (!wanted.every((event) => events.includes(event))) await new Promise((resolve) => setTimeout(resolve, 20))
await watch.stop()

let screen = ''
const pty = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => { screen += Buffer.from(data).toString() } })
const shows = async (wanted) => { while (!screen.includes(wanted)) await new Promise((resolve) => setTimeout(resolve, 20)) }
await sandbox.pty.sendInput(pty.pid, Buffer.from('echo size is $(stty size)\n'))
await shows('size is 24 80')
await sandbox.pty.resize(pty.pid, { cols: 100, rows: 30 })
await sandbox.pty.sendInput(pty.pid, Buffer.from('echo size is $(stty size)\n'))
await shows('size is 30 100')
assert.equal(await sandbox.pty.kill(pty.pid), true)
await assert.rejects(pty.wait(), CommandExitError)

// Another client knows the token only by the API.
const other = await Sandbox.connect(sandbox.sandboxId)
assert.equal((await other.commands.run('echo $MODE')).stdout, 'from the create\n')
assert.equal(await sandbox.kill(), true)
// The gateway may hear of it after its answer, when much else is going on.
while (await sandbox.commands.run('echo late').then(() => true, () => false));
