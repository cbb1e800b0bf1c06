// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// The three forms of an address of a port in a sandbox, without the SDK's own requests:
// headers, the path, and the host that getHost tells. DIR is an empty folder for files.
import assert from 'node:assert/strict'
import http from 'node:http'
import { Sandbox } from 'e2b'

const gateway = new URL(process.env.E2B_API_URL)
// What is in the home folder of the user of this machine is of no concern.
const sandbox = await Sandbox.create(process.env.POOL, { envs: { HOME: process.env.DIR } })
const port = 49983
const host = sandbox.getHost(port)
assert.equal(host, `${port}-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)

function request(form, method, path, { headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const req = http.request({
      host: gateway.hostname, port: gateway.port, method, path: (form.prefix ?? '') + path,
      headers: { ...form.headers, ...headers },
    }, resolve)
    req.on('error', reject)
    req.end(body)
  })
}

async function read(answer) {
  const chunks = []
  for await (const chunk of answer) {
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

// messages yields those of a connect stream as they come.
async function* messages(answer) {
  let rest = Buffer.alloc(0)
  for await (const chunk of answer) {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1)
      yield { flags: rest[0], ...JSON.parse(rest.subarray(5, end)) }
      rest = rest.subarray(end)
    }
  }
  assert.equal(rest.length, 0, 'the stream was cut')
}

function envelope(message) {
  const body = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(body.length, 1)
  return Buffer.concat([head, body])
}

async function tryForm(name, form) {
  const file = `${process.env.DIR}/${name}`
  const query = `path=${encodeURIComponent(file)}`
  const token = { 'X-Access-Token': sandbox.envdAccessToken }
  assert.equal((await request(form, 'GET', '/health')).statusCode, 204, name)
  assert.equal((await request(form, 'GET', '/envs')).statusCode, 401, `${name}: envd is not asked for its token`)

  const put = await request(form, 'POST', `/files?${query}`, { headers: { ...token, 'Content-Type': 'application/octet-stream' }, body: 'content' })
  assert.equal(put.statusCode, 200, `${name}: ${await read(put)}`)
  const got = await request(form, 'GET', `/files?${query}`, { headers: token })
  assert.equal((await read(got)).toString(), 'content', name)
  assert.equal(await sandbox.files.read(file), 'content', name)

  const answer = await request(form, 'POST', '/process.Process/Start', {
    headers: { ...token, 'Content-Type': 'application/connect+json' },
    body: envelope({ process: { cmd: '/bin/bash', args: ['-l', '-c', `mkfifo ${file}.go; echo first; read x <${file}.go; echo second`] } }),
  })
  assert.equal(answer.statusCode, 200, name)
  let output = ''
  let told
  let ended = false
  for await (const { flags, event } of messages(answer)) {
    output += Buffer.from(event?.data?.stdout ?? '', 'base64')
    if (event?.data && output === 'first\n') {
      told ??= await sandbox.commands.run(`echo go >${file}.go`) // or the second line never comes
    }
    ended ||= flags === 2
  }
  assert.equal(output, 'first\nsecond\n', name)
  assert.ok(ended, name)
}

const forms = {
  headers: { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) } },
  path: { prefix: `/kruise/${sandbox.sandboxId}/${port}` },
  host: { headers: { Host: host } },
}
for (const [name, form] of Object.entries(forms)) {
  await tryForm(name, form)
}

// A signed URL of the SDK needs no token. It is for the sandbox's own host, or for
// E2B_SANDBOX_URL, which knows no sandbox without headers.
await sandbox.files.write(`${process.env.DIR}/signed`, 'by url')
const url = new URL(await sandbox.downloadUrl(`${process.env.DIR}/signed`, { useSignatureExpiration: 10_000 }))
assert.equal(url.host, new URL(process.env.E2B_SANDBOX_URL).host)
const signed = await request(forms.host, 'GET', url.pathname + url.search)
assert.equal((await read(signed)).toString(), 'by url')

// A port where nothing listens, and a sandbox that is gone, are 502 in JSON.
const nothing = await request({ headers: { Host: sandbox.getHost(9) } }, 'GET', '/')
assert.equal(nothing.statusCode, 502)
assert.equal(JSON.parse(await read(nothing)).code, 502)
assert.equal(await sandbox.kill(), true)
for (const [name, form] of Object.entries(forms)) {
  const gone = await request(form, 'GET', '/health')
  assert.equal(gone.statusCode, 502, name)
  assert.equal(JSON.parse(await read(gone)).code, 502, name)
}
// Answers that nobody has read keep their connections, and this process.
http.globalAgent.destroy()
