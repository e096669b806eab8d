# Eclipse Paho's Python client against a broker with TLS, users and rules. Prints a line for each thing
# that went as it should; ends with a traceback at the first that did not.
#
#   python3 paho_client.py PORT FOLDER USER PASSWORD
#
# FOLDER holds ca.crt and the pair alice.crt, alice.key. The user may do everything but secret/#.

import ssl
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

port, folder, user, password = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
WAIT = 15


class Peer:
    """A client whose events can be waited for."""

    def __init__(self, name, version, login="password", clean=True, trust="ca.crt"):
        self.version = version
        options = {} if version == mqtt.MQTTv5 else {"clean_session": clean}
        self.client = mqtt.Client(name, protocol=version, **options)
        pair = login == "certificate"
        self.client.tls_set(
            f"{folder}/{trust}" if trust else None,
            f"{folder}/alice.crt" if pair else None,
            f"{folder}/alice.key" if pair else None,
        )
        if login != "certificate":
            self.client.username_pw_set(user, password if login == "password" else "wrong")
        self.changed = threading.Condition()
        self.messages, self.granted, self.acked = [], {}, set()
        self.code = self.present = None
        self.client.on_connect = self._connected
        self.client.on_message = lambda _c, _u, message: self._note(self.messages.append, message)
        self.client.on_publish = lambda _c, _u, mid: self._note(self.acked.add, mid)
        self.client.on_subscribe = self._subscribed

    def _note(self, change, value):
        with self.changed:
            change(value)
            self.changed.notify_all()

    def _connected(self, _client, _userdata, flags, code, *_properties):
        with self.changed:
            self.present = flags["session present"]
            self.code = code if isinstance(code, int) else code.value
            self.changed.notify_all()

    def _subscribed(self, _client, _userdata, mid, granted, *_properties):
        codes = [each if isinstance(each, int) else each.value for each in granted]
        self._note(lambda value: self.granted.update({mid: value}), codes)

    def until(self, is_true, what):
        with self.changed:
            if not self.changed.wait_for(is_true, WAIT):
                raise AssertionError(f"{what} did not come within {WAIT} s")

    def join(self, **options):
        self.code = None
        self.client.connect("localhost", port, keepalive=20, **options)
        self.client.loop_start()
        self.until(lambda: self.code is not None, "CONNACK")
        return self

    def leave(self):
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic, qos):
        _, mid = self.client.subscribe(topic, qos)
        self.until(lambda: mid in self.granted, "SUBACK")
        return self.granted[mid]

    def publish(self, topic, payload, qos, **options):
        info = self.client.publish(topic, payload, qos, **options)
        self.until(lambda: info.mid in self.acked, "the end of a publish")


def equal(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found} where {wanted} was expected")


def properties(kind, **values):
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def exchange(version, base):
    """Every QoS, a large payload, retained, and what Paho does with a session that stays."""
    reader = Peer(f"{base} reader", version).join()
    equal(reader.subscribe(f"{base}/#", 2), [2])
    writer = Peer(f"{base} writer", version, login="certificate").join()
    equal(writer.code, 0)
    for qos in (0, 1, 2):
        writer.publish(f"{base}/{qos}", f"text {qos}", qos)
    # Paho hands a message of QoS 2 on when it is released: what comes behind it may be there first.
    reader.until(lambda: len(reader.messages) == 3, "a message of each QoS")
    writer.publish(f"{base}/large", b"x" * 300_000, 1)
    writer.publish(f"{base}/kept", "kept", 1, retain=True)
    reader.until(lambda: len(reader.messages) == 5, "five messages")
    equal([message.qos for message in reader.messages], [0, 1, 2, 1, 1])
    equal(len(reader.messages[3].payload), 300_000)
    late = Peer(f"{base} late", version).join()
    late.subscribe(f"{base}/kept", 1)
    late.until(lambda: late.messages, "the retained message")
    equal((late.messages[0].retain, late.messages[0].payload), (True, b"kept"))
    for peer in (reader, writer, late):
        peer.leave()


def lasting(version, base):
    """Messages that come while the client is away wait for it."""
    five = version == mqtt.MQTTv5
    options = (
        {
            "clean_start": False,
            "properties": properties(PacketTypes.CONNECT, SessionExpiryInterval=60),
        }
        if five
        else {}
    )
    first = Peer(f"{base} lasting", version, clean=False).join(**options)
    equal(first.subscribe(f"{base}/away", 1), [1])
    first.leave()
    writer = Peer(f"{base} writer", version).join()
    for n in range(50):
        writer.publish(f"{base}/away", str(n), 1 + n % 2)
    again = Peer(f"{base} lasting", version, clean=False).join(**options)
    equal(bool(again.present), True)
    again.until(lambda: len(again.messages) == 50, "fifty messages")
    equal([message.payload.decode() for message in again.messages], [str(n) for n in range(50)])
    for peer in (writer, again):
        peer.leave()


def denied(version, base):
    """What rules forbid: told where the version can, never delivered."""
    refused = 0x87 if version == mqtt.MQTTv5 else 0x80
    peer = Peer(f"{base} denied", version).join()
    equal(peer.subscribe("secret/x", 1), [refused])
    equal(peer.subscribe(f"{base}/open", 1), [1])
    peer.publish("secret/x", "no", 1)
    peer.publish(f"{base}/open", "yes", 1)
    peer.until(lambda: peer.messages, "the message that is allowed")
    equal([message.topic for message in peer.messages], [f"{base}/open"])
    peer.leave()


def turned_away(version, base):
    """Logins that fail, and a server that is not trusted."""
    wrong = Peer(f"{base} wrong", version, login="wrong").join()
    # 3.1.1 has a code for "not authorized" and one for a bad password.
    if wrong.code not in ((0x86, 0x87) if version == mqtt.MQTTv5 else (4, 5)):
        raise AssertionError(f"CONNACK {wrong.code} for a wrong password")
    wrong.client.loop_stop()
    stranger = Peer(f"{base} stranger", version, trust=None)
    try:
        stranger.client.connect("localhost", port)
    except ssl.SSLCertVerificationError:
        return
    raise AssertionError("a certificate of nobody's was accepted")


def last_will(version, base):
    reader = Peer(f"{base} reader", version).join()
    reader.subscribe(f"{base}/will", 1)
    mortal = Peer(f"{base} mortal", version)
    mortal.client.will_set(f"{base}/will", "gone", 1)
    mortal.join()
    mortal.client.loop_stop()
    mortal.client.socket().close()
    reader.until(lambda: reader.messages, "the will")
    equal(reader.messages[0].payload, b"gone")
    reader.leave()


def meta(base):
    """Properties of MQTT 5, as they were given."""
    reader = Peer(f"{base} meta reader", mqtt.MQTTv5).join()
    reader.subscribe(f"{base}/meta", 1)
    writer = Peer(f"{base} meta writer", mqtt.MQTTv5).join()
    given = properties(
        PacketTypes.PUBLISH,
        UserProperty=[("b", "1"), ("a", "2"), ("b", "3")],
        ContentType="text/plain",
        ResponseTopic="answers",
        CorrelationData=b"\x00\xff",
    )
    writer.publish(f"{base}/meta", "x", 1, properties=given)
    reader.until(lambda: reader.messages, "the message")
    found = reader.messages[0].properties
    equal(found.UserProperty, [("b", "1"), ("a", "2"), ("b", "3")])
    equal(
        (found.ContentType, found.ResponseTopic, found.CorrelationData),
        ("text/plain", "answers", b"\x00\xff"),
    )
    for peer in (reader, writer):
        peer.leave()


for version, base in ((mqtt.MQTTv311, "paho4"), (mqtt.MQTTv5, "paho5")):
    for each in (exchange, lasting, denied, turned_away, last_will):
        each(version, base)
        print(f"{base} {each.__name__}", flush=True)
meta("paho5")
print("paho5 meta", flush=True)
