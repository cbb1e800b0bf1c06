// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Lists: by metadata that has to be encoded, by state, and in pages.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const metadata = { 'team.io/app': 'a b&c=d/ü', 'team.io/run': '100% + "1"' }
const odd = await Promise.all([1, 2, 3, 4, 5].map(() => Sandbox.create(process.env.POOL, { metadata })))
const other = await Sandbox.create(process.env.POOL, { metadata: { 'team.io/app': 'a b&c=d' } })

async function all(query, limit) {
  const pages = []
  const paginator = Sandbox.list({ query, limit })
  while (paginator.hasNext) {
    pages.push(await paginator.nextItems())
  }
  return pages
}
const ids = (sandboxes) => sandboxes.map((one) => one.sandboxId).sort()

const found = (await all({ metadata })).flat()
assert.deepEqual(ids(found), ids(odd))
for (const one of found) {
  assert.equal(one.metadata['team.io/app'], metadata['team.io/app'])
  assert.equal(one.metadata['team.io/run'], metadata['team.io/run'])
  assert.ok(one.startedAt instanceof Date && !Number.isNaN(one.startedAt.getTime()))
  assert.ok(one.endAt > one.startedAt)
}
assert.deepEqual(ids((await all({ metadata: { 'team.io/app': 'a b&c=d' } })).flat()), [other.sandboxId])
assert.deepEqual((await all({ metadata: { 'team.io/app': 'a b' } })).flat(), [])
assert.ok(ids((await all()).flat()).includes(other.sandboxId))

const pages = await all({ metadata }, 2)
assert.deepEqual(ids(pages.flat()), ids(odd), 'each is on one page')
assert.ok(pages.length >= 3 && pages.every((page) => page.length <= 2), 'pages of two at most')

assert.equal(await odd[0].pause(), true)
assert.deepEqual(ids((await all({ metadata, state: ['paused'] })).flat()), [odd[0].sandboxId])
assert.deepEqual(ids((await all({ metadata, state: ['running'] })).flat()), ids(odd.slice(1)))
assert.deepEqual(ids((await all({ metadata, state: ['running', 'paused'] })).flat()), ids(odd))

for (const sandbox of [...odd, other]) {
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
}
assert.deepEqual((await all({ metadata })).flat(), [])
