// Copies one topic into another in transactions with kafkajs; ../copiers/launch.py documents arguments and lines.
'use strict'
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const settings = Object.fromEntries(process.argv.slice(2).map((argument) => argument.split(/=(.*)/s)))
const FENCED_EXIT = 3
let hold = ''
let stopped = false
let resume = () => {}

const lines = readline.createInterface({ input: process.stdin })
lines.on('line', (line) => {
  if (line.startsWith('hold ')) {
    hold = line.slice(5)
  } else {
    hold = ''
    resume()
  }
})
lines.on('close', () => {
  stopped = true
  hold = ''
  resume()
})

const print = (line) => console.log(line.replaceAll('\n', ' ').trim())

async function phase(name, number, what = '') {
  print(`${name} ${number} ${what}`)
  if (name !== hold) return
  const resumed = new Promise((resolve) => { resume = resolve })
  print(`held ${name} ${number}`)
  await resumed
}

// A generator with a seed, as Math.random has none.
function dice(seed) {
  let state = seed >>> 0
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32
}

async function main() {
  const chance = dice(Number(settings.seed))
  const kafka = new Kafka({
    clientId: settings.label,
    brokers: settings.bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 },
  })
  const producer = kafka.producer({
    transactionalId: settings.id,
    transactionTimeout: Number(settings.timeout_ms),
    maxInFlightRequests: 1,
    idempotent: true,
    allowAutoTopicCreation: false,
  })
  const consumer = kafka.consumer({ groupId: settings.group, maxWaitTimeInMs: 100, readUncommitted: false, sessionTimeout: 6000, heartbeatInterval: 1000 })
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [settings.input], fromBeginning: true })
  print('ready')
  let number = 0

  async function copy(partition, messages, commit) {
    const fate = commit ? 'commit' : 'abort'
    const copies = messages.map((message) => {
      const value = message.value.toString()
      const index = Number(value.split('.')[1]) % Number(settings.outputs)
      return { partition: index, value: `${value}|${settings.label}-${number}|${fate}` }
    })
    await phase('begun', number, fate)
    const transaction = await producer.transaction()
    try {
      await transaction.send({ topic: settings.output, messages: copies, acks: -1 })
      await phase('produced', number, copies.length)
      const offset = String(BigInt(messages[messages.length - 1].offset) + 1n)
      const topics = [{ topic: settings.input, partitions: [{ partition, offset }] }]
      await transaction.sendOffsets({ consumerGroupId: settings.group, topics })
      await phase('offsets', number)
      await phase('ending', number, fate)
      await (commit ? transaction.commit() : transaction.abort())
    } catch (error) {
      print(`failed ${number} ${error}`)
      if (/PRODUCER_FENCED|INVALID_PRODUCER_EPOCH/.test(error.type)) {
        print('fenced')
        process.exit(FENCED_EXIT)
      }
      if (transaction.isActive()) await transaction.abort()
      return false
    }
    await phase('ended', number, fate)
    return commit
  }

  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      const size = Number(settings.size)
      for (let at = 0; at < batch.messages.length && isRunning() && !isStale() && !stopped; number++) {
        const part = batch.messages.slice(at, at + size)
        if (await copy(batch.partition, part, chance() * 100 >= Number(settings.aborts))) {
          resolveOffset(part[part.length - 1].offset)
          at += part.length
        }
        await heartbeat()
      }
    },
  })
  while (!stopped) await new Promise((resolve) => { setTimeout(resolve, 50) })
  await consumer.disconnect()
  await producer.disconnect()
  print('closed')
}

main().catch((error) => {
  print(`failed ${error.stack}`)
  process.exit(1)
})
