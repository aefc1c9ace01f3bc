// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// What is written into events.
const (
	// eventComponent is whose events these are: tools select by it.
	eventComponent = "kubelet"
	// maxEventMessage bounds the message of an event, in bytes. The kubelet's have no bound.
	maxEventMessage = 4096
	// maxEventName is how long the name of an object may be.
	maxEventName = 253
	// reasonFailedValidation is the reason of the event of an update of a pod that this agent cannot follow. Source: pkg/kubelet/events/event.go.
	reasonFailedValidation = "FailedValidation"
)

// newEvent returns an event that happened once, at a time. The number makes its name.
func newEvent(about corev1.ObjectReference, node, eventType, reason, message string, now time.Time, number int64) *corev1.Event {
	at := metav1.Time{Time: now}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: eventName(about.Name, number), Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		InvolvedObject: about, Type: eventType, Reason: reason, Message: truncateMessage(message),
		Source:         corev1.EventSource{Component: eventComponent, Host: node},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: eventComponent, ReportingInstance: node,
	}
}

// eventName returns a name that no other event of the agent has.
func eventName(object string, number int64) string {
	suffix := fmt.Sprintf(".%x", number)
	if most := maxEventName - len(suffix); len(object) > most {
		object = strings.TrimRight(object[:most], "-.")
	}
	return object + suffix
}

// shortMessage returns a message that is not too long.
func truncateMessage(message string) string {
	const more = "..."
	if message = strings.ToValidUTF8(message, "�"); len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len(more)], "") + more
}

// podReference returns what refers to a pod. For a static pod its own UID counts: tools find the events by the annotation of its mirror.
func podReference(pod cri.PodIdentity) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
}

// PodEvent records an event of a pod or of one of its containers. It is for Hooks.Event of package lifecycle, and does not wait.
func (r *Recorder) PodEvent(pod cri.PodIdentity, e podevents.Event) {
	r.AnnotatedPodEvent(pod, e, nil)
}

// AnnotatedPodEvent records one with annotations, for programs: those that podevict.Explain has for an eviction. It does not wait.
func (r *Recorder) AnnotatedPodEvent(pod cri.PodIdentity, e podevents.Event, annotations map[string]string) {
	r.enqueueEvent(podReference(pod), e.Container, annotations, e.Type, e.Reason, e.Message)
}

// locate says which container an event is about. Source: GenerateContainerRef in pkg/kubelet/container/ref.go.
func (r *Recorder) setFieldPath(e *queuedEvent) {
	about := &e.event.InvolvedObject
	if about.Kind != "Pod" {
		return
	}
	var pod *corev1.Pod
	if r.opts.Pod != nil {
		pod = r.opts.Pod(string(about.UID))
	}
	if pod != nil {
		about.ResourceVersion = pod.ResourceVersion
	}
	if e.container == "" {
		return
	}
	list := "containers"
	if pod != nil {
		if c := containers.Find(&pod.Spec, e.container); c.Container != nil {
			list = [...]string{containers.Init: "initContainers", containers.Regular: "containers", containers.Ephemeral: "ephemeralContainers"}[c.Kind]
		}
	}
	about.FieldPath = "spec." + list + "{" + e.container + "}"
}

// NodeEvent records an event of the node. It does not wait.
func (r *Recorder) NodeEvent(eventType, reason, message string) {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node}
	if r.opts.NodeUID != nil {
		about.UID = r.opts.NodeUID()
	}
	r.Event(about, eventType, reason, message)
}

// PodRefused records that the agent cannot follow an update of a pod, with the field that it is about: the pod stays as it is. A pod that is
// rejected gets the event of its rejection instead. It is for Hooks.PodRefused of package lifecycle; the same error is an event at most every five
// minutes. It does not wait.
func (r *Recorder) PodRefused(err *lifecycle.RefusedError) {
	if err.Rejection != nil {
		return
	}
	r.mu.Lock()
	again := r.refusals.recordIfNew(err.Pod.UID, err.Error(), time.Now())
	r.mu.Unlock()
	if again {
		r.enqueueEvent(podReference(err.Pod), "", nil, corev1.EventTypeWarning, reasonFailedValidation, err.Error())
	}
}

// told is what was said of pods that are refused.
type refusalLog struct {
	entries map[string]refusalEntry // by UID
}

type refusalEntry struct {
	hash [sha256.Size]byte
	at   time.Time
}

// The limits of what is said again.
const (
	refusalRepeatAfter = 5 * time.Minute
	maxRefusalEntries  = 1024
)

// again reports whether a text is to be said of a pod, and notes that it is.
func (t *refusalLog) recordIfNew(uid, text string, now time.Time) bool {
	hash := sha256.Sum256([]byte(text))
	if was, ok := t.entries[uid]; ok && was.hash == hash && now.Sub(was.at) < refusalRepeatAfter {
		return false
	}
	if t.entries == nil || len(t.entries) >= maxRefusalEntries {
		t.dropExpired(now)
	}
	t.entries[uid] = refusalEntry{hash, now}
	return true
}

// forget makes room: what could be said again anyhow is forgotten, and if that is nothing, all.
func (t *refusalLog) dropExpired(now time.Time) {
	kept := map[string]refusalEntry{}
	for uid, was := range t.entries {
		if now.Sub(was.at) < refusalRepeatAfter {
			kept[uid] = was
		}
	}
	if len(kept) >= maxRefusalEntries {
		kept = map[string]refusalEntry{}
	}
	t.entries = kept
}
