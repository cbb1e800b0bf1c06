// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Methods for what is not served fail as such, and not as for an object that is missing.
import assert from 'node:assert/strict'
import { Secret, Template, Volume } from 'e2b'

assert.equal(await Template.exists(process.env.POOL), true)
assert.equal(await Template.exists('no-such-template'), false)

const unserved = {
  'Secret.list': () => Secret.list().nextItems(),
  'Secret.create': () => Secret.create('name', 'value', {}),
  'Secret.getInfo': () => Secret.getInfo('id'),
  'Secret.update': () => Secret.update('id', 'value'),
  'Secret.exists': () => Secret.exists('id'),
  'Secret.destroy': () => Secret.destroy('id'),
  'Template.getTags': () => Template.getTags(process.env.POOL),
  'Template.assignTags': () => Template.assignTags(process.env.POOL, 'v1'),
  'Template.removeTags': () => Template.removeTags(process.env.POOL, 'v1'),
  'Template.getBuildStatus': () => Template.getBuildStatus({ templateId: process.env.POOL, buildId: 'x' }),
  'Volume.list': () => Volume.list(),
  'Volume.readFile': () => new Volume('id', 'name', 'token').readFile('/x', { apiUrl: process.env.E2B_API_URL }),
}
for (const [name, call] of Object.entries(unserved)) {
  await assert.rejects(async () => call(), (error) => {
    assert.match(String(error), /501:.*is not served/, `${name}: ${error}`)
    return true
  }, `${name} does not fail`)
}
