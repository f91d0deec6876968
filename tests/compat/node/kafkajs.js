// kafkajs against a broker: node kafkajs.js BOOTSTRAP PREFIX. test_node.py knows the names of the checks.
// Prints a line for each: "PASS name" or "FAIL name: why".
'use strict'
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const [bootstrap, prefix] = process.argv.slice(2)
const RECORDS = 50
const FIRST_MS = 1_700_000_000_000
const retry = { retries: 3 }
const kafka = new Kafka({ clientId: 'kafkajs-compat', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
const admin = kafka.admin()
let topics = 0

async function check(name, run) {
  try {
    await run()
    console.log(`PASS ${name}`)
  } catch (error) {
    console.log(`FAIL ${name}: ${String(error.stack).replaceAll('\n', ' ')}`)
  }
}

async function newTopic(numPartitions = 1) {
  const topic = `${prefix}-${++topics}`
  // The records are old: the next look at retention would delete them.
  const configEntries = [{ name: 'retention.ms', value: '-1' }]
  assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }), true)
  return topic
}

function message(number, partition) {
  return {
    partition,
    key: number % 5 === 1 ? null : `key-${number}`,
    value: number % 5 === 2 ? null : `value-${number} ☃`,
    timestamp: String(FIRST_MS + 1000 * number),
    headers: { h: Buffer.from([0, 255]), text: 'ü' },
  }
}

async function fill(topic, partition = 0, options = {}, producerOptions = {}) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...producerOptions })
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, number) => message(number, partition))
  const answer = await producer.send({ topic, messages, ...options })
  await producer.disconnect()
  return answer
}

// Reads `count` records as a member of a group, commits and leaves.
async function read(groupId, topic, count, options = {}) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, retry, ...options })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let done
  const enough = new Promise((resolve, reject) => {
    done = resolve
    setTimeout(() => reject(new Error(`${found.length} of ${count} records in time`)), 15_000).unref()
  })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => {
      found.push({ partition, ...message })
      if (found.length >= count) done()
    },
  })
  try {
    await enough
  } finally {
    await consumer.disconnect()
  }
  return found
}

async function roundTrip(options, producerOptions) {
  const topic = await newTopic()
  const [answer] = await fill(topic, 0, options, producerOptions)
  if (options.acks !== 0) assert.equal(answer.baseOffset, '0')
  const found = await read(`${topic}-group`, topic, RECORDS)
  found.forEach((record, number) => {
    const expected = message(number)
    assert.equal(record.key === null ? null : record.key.toString(), expected.key)
    assert.equal(record.value === null ? null : record.value.toString(), expected.value)
    assert.equal(record.timestamp, expected.timestamp)
    assert.equal(record.offset, String(number))
    assert.deepEqual([...record.headers.h], [0, 255])
    assert.equal(record.headers.text.toString(), 'ü')
  })
}

async function group() {
  const topic = await newTopic(3)
  for (let partition = 0; partition < 3; partition++) await fill(topic, partition)
  const groupId = `${topic}-group`
  const found = await read(groupId, topic, 3 * RECORDS)
  assert.equal(new Set(found.map((record) => `${record.partition}-${record.offset}`)).size, 3 * RECORDS)
  await fill(topic, 1)
  const rest = await read(groupId, topic, RECORDS)
  assert.deepEqual([...new Set(rest.map((record) => record.partition))], [1])
  assert.equal(rest[0].offset, String(RECORDS))
}

async function createdTopics() {
  const topic = `${prefix}-created`
  const configEntries = [{ name: 'retention.ms', value: '60000' }]
  assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] }), true)
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.equal(metadata.topics[0].partitions.length, 5)
  assert.ok((await admin.listTopics()).includes(topic))
  await admin.deleteTopics({ topics: [topic] })
  assert.ok(!(await admin.listTopics()).includes(topic))
}

async function configs() {
  const name = await newTopic()
  const resource = { type: ConfigResourceTypes.TOPIC, name }
  const value = async () => {
    const found = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
    return found.resources[0].configEntries[0].configValue
  }
  const configEntries = [{ name: 'retention.ms', value: '5000' }]
  await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
  assert.equal(await value(), '5000')
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [] }] })
  assert.equal(await value(), '604800000')
}

async function deleteRecords() {
  const topic = await newTopic()
  await fill(topic)
  await admin.fetchTopicOffsets(topic) // or it does not know the leader, whatever the broker
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '20' }] })
  const [offsets] = await admin.fetchTopicOffsets(topic)
  assert.deepEqual([offsets.low, offsets.high], ['20', String(RECORDS)])
}

async function offsets() {
  const topic = await newTopic(2)
  await fill(topic, 1)
  const ends = await admin.fetchTopicOffsets(topic)
  assert.deepEqual(ends.map(({ partition, high, low }) => [partition, low, high]).sort(), [[0, '0', '0'], [1, '0', '50']])
  const later = await admin.fetchTopicOffsetsByTimestamp(topic, FIRST_MS + 11_500)
  assert.equal(later.find(({ partition }) => partition === 1).offset, '12')
}

async function groupsAdmin() {
  const topic = await newTopic(2)
  await fill(topic, 0)
  const groupId = `${topic}-admin`
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '30' }] })
  const [committed] = await admin.fetchOffsets({ groupId, topics: [topic] })
  assert.equal(committed.partitions.find(({ partition }) => partition === 0).offset, '30')
  const rest = await read(groupId, topic, RECORDS - 30)
  assert.equal(rest[0].offset, '30')
  assert.ok((await admin.listGroups()).groups.some((listed) => listed.groupId === groupId))
  const described = await admin.describeGroups([groupId])
  assert.equal(described.groups[0].state, 'Empty')
  await admin.resetOffsets({ groupId, topic, earliest: true })
  assert.equal((await read(groupId, topic, RECORDS)).length, RECORDS)
  const [deleted] = await admin.deleteGroups([groupId])
  assert.equal(deleted.errorCode, 0)
}

async function cluster() {
  const found = await admin.describeCluster()
  assert.equal(found.brokers.length, 1)
  assert.equal(found.controller, found.brokers[0].nodeId)
  assert.equal(found.clusterId.length, 22)
  const { topics } = await admin.listPartitionReassignments({})
  assert.deepEqual(topics, [])
}

async function main() {
  await admin.connect()
  await check('records[none]', () => roundTrip({}))
  await check('records[gzip]', () => roundTrip({ compression: CompressionTypes.GZIP }))
  await check('acks[none]', () => roundTrip({ acks: 0 }))
  await check('acks[leader]', () => roundTrip({ acks: 1 }))
  await check('idempotence', () => roundTrip({ acks: -1 }, { idempotent: true, maxInFlightRequests: 1 }))
  await check('group', group)
  await check('topics', createdTopics)
  await check('configs', configs)
  await check('delete-records', deleteRecords)
  await check('offsets', offsets)
  await check('groups-admin', groupsAdmin)
  await check('cluster', cluster)
  await admin.disconnect()
}

main().then(() => process.exit(0), (error) => {
  console.log(`FAIL connect: ${error}`)
  process.exit(1)
})
