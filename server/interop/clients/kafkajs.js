// kafkajs in front of a broker, driven by the tests of this directory; NODE_PATH says where it is installed.
//
//   node kafkajs.js produce BOOTSTRAP TOPIC CODEC   records on standard input, as in confluent.py
//   node kafkajs.js admin BOOTSTRAP TOPIC           creates, changes and deletes TOPIC; one line for each answer
//   node kafkajs.js group BOOTSTRAP TOPIC           two members of a group read TOPIC, which has 40 records in 4 partitions; one line for each step
//   node kafkajs.js roll BOOTSTRAP TOPIC GROUP      reads and commits until its standard input ends; one line for each record and commit
//   node kafkajs.js version
'use strict'
const fs = require('fs')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')

// kafkajs has none and gzip itself; a plug-in is a pair of functions.
const lz4 = require('lz4-napi')
const zstd = require('@mongodb-js/zstd')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => zstd.compress(encoder.buffer, 3),
  decompress: buffer => zstd.decompress(buffer),
})
const codecs = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

const now = Date.now()
const open = bootstrap => new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.ERROR, requestTimeout: 60000, retry: { retries: 8 } })
const unpack = text => (text === null ? null : Buffer.from(text, 'base64'))

// Apache shows a change a little after it has said that it is made.
async function settled(ask, want) {
  for (let i = 0; i < 100 && (await ask()) !== want; i++) await new Promise(done => setTimeout(done, 100))
  return ask()
}

// Headers of one name must follow each other: kafkajs takes an object with a list for each name.
function headers(pairs) {
  const all = {}
  for (const [name, value] of pairs) (all[name] ??= []).push(unpack(value))
  return all
}

async function produce(bootstrap, topic, codec) {
  const messages = fs.readFileSync(0, 'utf8').trimEnd().split('\n').map(line => {
    const r = JSON.parse(line)
    return { partition: r.p, timestamp: String(r.t), key: unpack(r.k), value: unpack(r.v), headers: headers(r.h) }
  })
  const producer = open(bootstrap).producer()
  await producer.connect()
  for (let i = 0; i < messages.length; i += 1500) { // one batch for each partition of each call
    await producer.send({ topic, acks: -1, compression: CompressionTypes[codecs[codec]], messages: messages.slice(i, i + 1500) })
  }
  await producer.disconnect()
}

async function admin(bootstrap, topic) {
  const kafka = open(bootstrap)
  const a = kafka.admin()
  await a.connect()
  const retention = async () => {
    const r = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }] })
    return r.resources[0].configEntries[0].configValue
  }
  const created = await a.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
  console.log('created', created)
  const cluster = await a.describeCluster()
  console.log('nodes', cluster.brokers.length, cluster.controller === cluster.brokers[0].nodeId)
  console.log('retention', await retention())
  await a.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  console.log('retention', await settled(retention, '7200000'))
  await a.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const messages = [...Array(10).keys()].map(i => ({ partition: 3, timestamp: String(now + i), value: String(i) }))
  await producer.send({ topic, messages })
  await producer.disconnect()
  const of3 = list => list.find(p => p.partition === 3)
  let ends = of3(await a.fetchTopicOffsets(topic))
  console.log('offsets', ends.low, ends.high)
  console.log('offset at', of3(await a.fetchTopicOffsetsByTimestamp(topic, now + 4)).offset)
  await a.deleteTopicRecords({ topic, partitions: [{ partition: 3, offset: '6' }] })
  ends = of3(await a.fetchTopicOffsets(topic))
  console.log('offsets', ends.low, ends.high)
  const meta = await a.fetchTopicMetadata({ topics: [topic] })
  console.log('partitions', meta.topics[0].partitions.length)
  await a.deleteTopics({ topics: [topic] })
  console.log('listed', await settled(async () => (await a.listTopics()).includes(topic), false))
  await a.disconnect()
}

// Subscribes, commits, pauses and seeks; a second member takes its share.
async function group(bootstrap, topic) {
  const kafka = open(bootstrap)
  const groupId = 'g-' + topic
  const member = () => kafka.consumer({ groupId, heartbeatInterval: 200, sessionTimeout: 10000, rebalanceTimeout: 20000, maxWaitTimeInMs: 50 })
  const until = async done => {
    for (let i = 0; i < 600 && !done(); i++) await new Promise(next => setTimeout(next, 100))
    if (!done()) throw new Error('nothing for a minute')
  }
  const seen = new Set()
  const shares = new Map()
  const start = async (consumer, name) => {
    consumer.on(consumer.events.GROUP_JOIN, e => shares.set(name, (e.payload.memberAssignment[topic] || []).length))
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ autoCommit: true, autoCommitThreshold: 1, eachMessage: async ({ partition, message }) => { seen.add(partition + '/' + message.offset) } })
  }
  const one = member()
  await start(one, 'one')
  await until(() => seen.size === 40)
  console.log('read', seen.size, 'assigned', shares.get('one'))
  const a = kafka.admin()
  await a.connect()
  const committed = async () => (await a.fetchOffsets({ groupId, topics: [topic] }))[0].partitions.map(p => p.partition + ':' + p.offset).sort().join(' ')
  console.log('committed', await settled(committed, '0:10 1:10 2:10 3:10'))
  one.pause([{ topic, partitions: [0] }])
  seen.clear()
  one.seek({ topic, partition: 0, offset: '5' })
  one.seek({ topic, partition: 1, offset: '5' })
  await until(() => seen.size === 5)
  console.log('after seek', [...new Set([...seen].map(s => s[0]))].join())
  one.resume([{ topic, partitions: [0] }])
  await until(() => seen.size === 10)
  const two = member()
  await start(two, 'two')
  await until(() => shares.get('one') === 2 && shares.get('two') === 2)
  console.log('shared', shares.get('one'), shares.get('two'))
  const described = async () => (await a.describeGroups([groupId])).groups[0]
  console.log('members', (await described()).members.length, (await described()).state)
  await one.disconnect()
  await two.disconnect()
  console.log('left', await settled(async () => (await described()).state, 'Empty'))
  console.log('deleted', (await a.deleteGroups([groupId]))[0].errorCode)
  await a.disconnect()
}

// Reads in a group and commits what it has read, over restarts of the broker.
async function roll(bootstrap, topic, groupId) {
  const kafka = new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.NOTHING, retry: { retries: 1000, maxRetryTime: 500 } })
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, sessionTimeout: 10000, rebalanceTimeout: 20000, maxWaitTimeInMs: 50, retry: { retries: 1000, maxRetryTime: 500 } })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      for (const m of batch.messages) console.log('read', batch.partition, m.offset)
      const offset = String(BigInt(batch.lastOffset()) + 1n)
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      console.log('committed', batch.partition, offset)
      await heartbeat()
    },
  })
  process.stdin.resume()
  await new Promise(done => process.stdin.on('end', done))
  await consumer.disconnect()
}

function version() {
  console.log('kafkajs', require('kafkajs/package.json').version, 'node', process.version)
}

const [what, ...args] = process.argv.slice(2)
Promise.resolve({ produce, admin, group, roll, version }[what](...args)).catch(err => {
  console.error(err)
  process.exitCode = 1
})
