// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package correlator aggregates events before they are sent to an API server. It raises the count of a repeated event, combines
// events that differ only in their message after the tenth, and drops events of an object with too many. It sends nothing. The
// behaviour is that of k8s.io/client-go/tools/record with its defaults.
//
// A [Correlator] gets the time as an argument, and stores hashes instead of texts, so that it needs at most 2 MiB. It must not be
// used concurrently.
package correlator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of a [Correlator]. Source: tools/record/events_cache.go of client-go.
const (
	// Remembered is the largest number of stored events, of stored groups and of stored objects. The least recently used entry
	// is removed.
	Remembered = 4096
	// SimilarMessages is the number of different messages after which similar events are combined. Each event must follow the
	// previous similar event within SimilarWithin.
	SimilarMessages = 10
	// SimilarWithin is the time after which an event without earlier similar events starts a new group.
	SimilarWithin = 600 * time.Second
	// Burst is how many events of one type may be sent about an object at once. Further events are sent at a rate of one per
	// Refill.
	Burst = 25
	// Refill is the time after which one more event of an object may be sent.
	Refill = 300 * time.Second

	combined = "(combined from similar events): "
)

// Result is the outcome of an event.
type Result struct {
	// Event is the event to store at the API server. Its count is above 1 if an equal event was recorded before.
	Event *corev1.Event
	// Patch is the strategic merge patch that updates the stored event to Event. Nil: Event must be created.
	Patch []byte
	// Skip reports that the object has too many events, so that this one must not be sent.
	Skip bool
}

// Correlator counts, combines and limits events. Create one with [New].
type Correlator struct {
	recorded *lru[sentEvent]
	groups   *lru[*group]
	objects  *lru[*bucket]
}

// sentEvent is the last sent state of an event.
type sentEvent struct {
	name  string
	first metav1.Time
	count int32
}

// group counts different messages of otherwise equal events.
type group struct {
	messages []key // hashes of messages; at most SimilarMessages-1
	last     time.Time
}

// New returns a Correlator without events.
func New() *Correlator {
	return &Correlator{recorded: newLRU[sentEvent](Remembered), groups: newLRU[*group](Remembered), objects: newLRU[*bucket](Remembered)}
}

// Correlate counts an event, without changing it, and combines it with similar events. The result has the event to send,
// with a patch if an equal event was sent before, or Skip if no event must be sent.
func (c *Correlator) Correlate(recorded *corev1.Event, now time.Time) Result {
	event, id := c.groupEvent(recorded, now)
	out := *event
	var patch []byte
	if sent, ok := c.recorded.getValue(id); ok && sent.count > 0 {
		out.Name, out.FirstTimestamp, out.Count = sent.name, sent.first, sent.count+1
		patch = buildPatch(&out)
	}
	c.recorded.putValue(id, sentEvent{out.Name, out.FirstTimestamp, out.Count})
	if !c.objectBucket(&out).takeToken(now) {
		return Result{Skip: true}
	}
	return Result{Event: &out, Patch: patch}
}

// groupEvent returns the event to send, and the key under which it is counted.
func (c *Correlator) groupEvent(event *corev1.Event, now time.Time) (*corev1.Event, key) {
	id := hashKey(kindGroup, sourceAndObject(event), []string{event.Type, event.Reason, event.ReportingController, event.ReportingInstance})
	g, ok := c.groups.getValue(id)
	if !ok || now.Sub(g.last) > SimilarWithin {
		g = &group{}
		c.groups.putValue(id, g)
	}
	g.last = now
	if message := hashKey(kindMessage, []string{event.Message}); !slices.Contains(g.messages, message) {
		if len(g.messages) == SimilarMessages-1 {
			// It stands for all similar events with different messages.
			return combinedEvent(event, now), id
		}
		g.messages = append(g.messages, message)
	}
	return event, hashKey(kindEvent, sourceAndObject(event), []string{event.InvolvedObject.FieldPath, event.Type, event.Reason, event.Message})
}

// combinedEvent returns an event to send in place of event after too many similar events with different messages. Its
// message is a fixed prefix and the message of event.
func combinedEvent(event *corev1.Event, now time.Time) *corev1.Event {
	t := metav1.Time{Time: now}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", event.InvolvedObject.Name, now.UnixNano()), Namespace: event.Namespace},
		InvolvedObject: event.InvolvedObject, Type: event.Type, Reason: event.Reason, Message: combined + event.Message, Source: event.Source,
		Count: 1, FirstTimestamp: t, LastTimestamp: t,
	}
}

// objectBucket returns the token bucket that limits events of this type and source about one object.
func (c *Correlator) objectBucket(event *corev1.Event) *bucket {
	id := hashKey(kindObject, sourceAndObject(event), []string{event.Type})
	b, ok := c.objects.getValue(id)
	if !ok {
		b = &bucket{tokens: Burst}
		c.objects.putValue(id, b)
	}
	return b
}

// bucket is a token bucket.
type bucket struct {
	tokens float64
	last   time.Time
}

// takeToken takes a token, and reports whether there was one.
func (b *bucket) takeToken(now time.Time) bool {
	tokens := b.tokens
	if since := now.Sub(b.last); since > 0 && !b.last.IsZero() {
		tokens = min(Burst, tokens+since.Seconds()*float64(float32(1)/float32(Refill.Seconds())))
	}
	if tokens < 1 {
		return false
	}
	b.tokens, b.last = tokens-1, now
	return true
}

// buildPatch returns a patch for the stored event in the API server. It contains the count, last time and message of event.
func buildPatch(event *corev1.Event) []byte {
	patch, err := json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{event.Count, event.LastTimestamp, event.Message})
	if err != nil {
		panic(err) // a number, a time and a string can always be encoded
	}
	return patch
}

// sourceAndObject returns the fields that identify the source and the object of event.
func sourceAndObject(event *corev1.Event) []string {
	o := &event.InvolvedObject
	return []string{event.Source.Component, event.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}
}

// key is a hash of strings. Collisions are so unlikely that they are not handled.
type key [16]byte

// The kinds of keys.
const (
	kindEvent byte = iota
	kindGroup
	kindMessage
	kindObject
)

// hashKey returns the hash of a kind and strings.
func hashKey(kind byte, texts ...[]string) (k key) {
	h := sha256.New()
	h.Write([]byte{kind})
	for _, list := range texts {
		for _, text := range list {
			writeText(h, text)
		}
	}
	copy(k[:], h.Sum(nil))
	return k
}

// writeText adds text to the hash h, after the length of text. Without the length, the lists "ab","c" and "a","bc" would
// have equal hashes.
func writeText(h hash.Hash, text string) {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
	h.Write(length[:])
	h.Write([]byte(text))
}
