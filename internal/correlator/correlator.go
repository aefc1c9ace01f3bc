// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package correlator decides which events reach an API server, and as what: an event that was recorded before has its count raised,
// events that differ in their message alone become one after the tenth, and an object of which there is too much to say is cut short. It
// sends nothing. The behaviour is that of k8s.io/client-go/tools/record with its defaults, which kubectl's users know the results of.
//
// A [Correlator] takes the time as an argument, and remembers hashes instead of texts, so that it stays below 2 MiB. It is not safe for
// use by several goroutines at the same time.
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

// The limits. Source: tools/record/events_cache.go of client-go.
const (
	// Remembered is how many events, groups and objects are remembered, of each; the one not seen for longest is forgotten.
	Remembered = 4096
	// SimilarMessages is how many messages of one kind are recorded one by one, each within SimilarWithin of the last, less one.
	SimilarMessages = 10
	// SimilarWithin is after what time without such an event a group begins anew.
	SimilarWithin = 600 * time.Second
	// Burst is how many events of a type an object may have at once, and then one every Refill.
	Burst = 25
	// Refill is how long one more event takes.
	Refill = 300 * time.Second

	combined = "(combined from similar events): "
)

// Result is what becomes of an event.
type Result struct {
	// Event is what the API server is to have. Its count is more than 1 where it has it already.
	Event *corev1.Event
	// Patch is the strategic merge patch that makes the event before this one; nil: it is new.
	Patch []byte
	// Skip says that there was too much of its object.
	Skip bool
}

// Correlator knows what was recorded. Make one with [New].
type Correlator struct {
	recorded *lru[sentEvent]
	groups   *lru[*group]
	objects  *lru[*bucket]
}

// observation is an event as it was recorded last.
type sentEvent struct {
	name  string
	first metav1.Time
	count int32
}

// group is events that differ in their message.
type group struct {
	messages []key // at most SimilarMessages-1 between two events
	last     time.Time
}

// New returns a Correlator that knows of no event.
func New() *Correlator {
	return &Correlator{recorded: newLRU[sentEvent](Remembered), groups: newLRU[*group](Remembered), objects: newLRU[*bucket](Remembered)}
}

// Correlate returns what becomes of an event, which is not changed, and remembers it.
func (c *Correlator) Correlate(e *corev1.Event, now time.Time) Result {
	event, id := c.groupEvent(e, now)
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

// group returns the event, or the one that stands for it and its like, and what that is known by.
func (c *Correlator) groupEvent(e *corev1.Event, now time.Time) (*corev1.Event, key) {
	id := hashKey(kindGroup, sourceAndObject(e), []string{e.Type, e.Reason, e.ReportingController, e.ReportingInstance})
	g, ok := c.groups.getValue(id)
	if !ok || now.Sub(g.last) > SimilarWithin {
		g = &group{}
		c.groups.putValue(id, g)
	}
	g.last = now
	if message := hashKey(kindMessage, []string{e.Message}); !slices.Contains(g.messages, message) {
		if len(g.messages) == SimilarMessages-1 {
			return combinedEvent(e, now), id
		}
		g.messages = append(g.messages, message)
	}
	return e, hashKey(kindEvent, sourceAndObject(e), []string{e.InvolvedObject.FieldPath, e.Type, e.Reason, e.Message})
}

// similar returns the event that stands for one and its like.
func combinedEvent(e *corev1.Event, now time.Time) *corev1.Event {
	t := metav1.Time{Time: now}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", e.InvolvedObject.Name, now.UnixNano()), Namespace: e.Namespace},
		InvolvedObject: e.InvolvedObject, Type: e.Type, Reason: e.Reason, Message: combined + e.Message, Source: e.Source,
		Count: 1, FirstTimestamp: t, LastTimestamp: t,
	}
}

// bucket returns how much may still be said of the object of an event.
func (c *Correlator) objectBucket(e *corev1.Event) *bucket {
	id := hashKey(kindObject, sourceAndObject(e), []string{e.Type})
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

// take takes a token, and reports whether there was one.
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

// patchOf returns what changes about an event that is recorded again.
func buildPatch(e *corev1.Event) []byte {
	patch, err := json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{e.Count, e.LastTimestamp, e.Message})
	if err != nil {
		panic(err) // a number, a time and a string
	}
	return patch
}

// about returns who says something about what.
func sourceAndObject(e *corev1.Event) []string {
	o := &e.InvolvedObject
	return []string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}
}

// key is a hash: it stands for texts of any length, and for nothing else in all the time that an agent may run.
type key [16]byte

// What a key is of.
const (
	kindEvent byte = iota
	kindGroup
	kindMessage
	kindObject
)

// keyOf returns the key of texts.
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

// writeText hashes a text so that it cannot be taken for the end of the one before.
func writeText(h hash.Hash, text string) {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
	h.Write(length[:])
	h.Write([]byte(text))
}
