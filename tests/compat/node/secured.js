// kafkajs on a secured broker: node secured.js CASES, a file of JSON with what go/secured/main.go calls a Case.
// Prints a line for each case: "PASS name" or "FAIL name: why".
'use strict'
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const WAIT_MS = 30_000

function sasl({ Mechanism, User, Secret }) {
  if (Mechanism === 'TLS') return undefined
  const mechanism = Mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') return { mechanism, oauthBearerProvider: async () => ({ value: Secret }) }
  return { mechanism, username: User, password: Secret }
}

function ssl({ CA, Identity }) {
  const authority = { ca: [readFileSync(CA, 'utf-8')] }
  if (!Identity) return authority
  const identity = readFileSync(Identity, 'utf-8')
  return { ...authority, key: identity, cert: identity }
}

async function roundTrip(given) {
  const retry = { retries: given.Refused ? 0 : 5 }
  const kafka = new Kafka({
    clientId: 'secured',
    brokers: [given.Bootstrap],
    ssl: ssl(given),
    sasl: sasl(given),
    logLevel: logLevel.NOTHING,
    retry,
  })
  const values = [0, 1, 2].map((number) => `${given.Name}-${number}`)
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  await producer.send({ topic: given.Topic, messages: values.map((value) => ({ value })) })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: given.Topic, maxWaitTimeInMs: 100, retry })
  await consumer.connect()
  await consumer.subscribe({ topics: [given.Topic], fromBeginning: true })
  const found = []
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`read only ${found}`)), WAIT_MS).unref()
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(message.value.toString())
        if (found.length >= values.length) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  assert.deepEqual(found, values)
}

async function main() {
  for (const given of JSON.parse(readFileSync(process.argv[2], 'utf-8'))) {
    try {
      await roundTrip(given)
      console.log(`PASS ${given.Name}`)
    } catch (error) {
      console.log(`FAIL ${given.Name}: ${String(error).replaceAll('\n', ' ')}`)
    }
  }
}

main().then(() => process.exit(0), (error) => {
  console.log(`FAIL all: ${error}`)
  process.exit(1)
})
