// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/eventobject"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// reasonFailedValidation is the reason of the event for a pod update that the agent cannot apply. Source:
// pkg/kubelet/events/event.go.
const reasonFailedValidation = "FailedValidation"

// PodEvent records an event of a pod or of one of its containers. It does not block. Use it as the lifecycle hook Event.
func (r *Recorder) PodEvent(pod cri.PodIdentity, event podevents.Event) {
	r.AnnotatedPodEvent(pod, event, nil)
}

// AnnotatedPodEvent records a pod event with annotations, for example those that podevict.Explain returns for an eviction.
// Otherwise it is like [Recorder.PodEvent]. It does not block.
func (r *Recorder) AnnotatedPodEvent(pod cri.PodIdentity, event podevents.Event, annotations map[string]string) {
	r.enqueueEvent(eventobject.PodReference(pod), event.Container, annotations, event.Type, event.Reason, event.Message)
}

// setFieldPath sets the pod's resource version and the container's path, such as spec.initContainers{NAME}, in an event.
// Source: GenerateContainerRef in pkg/kubelet/container/ref.go.
func (r *Recorder) setFieldPath(queued *queuedEvent) {
	about := &queued.event.InvolvedObject
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
	if queued.container == "" {
		return
	}
	list := "containers"
	if pod != nil {
		if c := containers.Find(&pod.Spec, queued.container); c.Container != nil {
			list = [...]string{containers.Init: "initContainers", containers.Regular: "containers", containers.Ephemeral: "ephemeralContainers"}[c.Kind]
		}
	}
	about.FieldPath = "spec." + list + "{" + queued.container + "}"
}

// NodeEvent records an event about the Node object of this agent. It does not block.
func (r *Recorder) NodeEvent(eventType, reason, message string) {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node}
	if r.opts.NodeUID != nil {
		about.UID = r.opts.NodeUID()
	}
	r.Event(about, eventType, reason, message)
}

// PodRefused records a Warning event for a pod update that the agent cannot apply: the pod runs on with its previous spec.
// It repeats the last event of a pod only after five minutes, and does not block. Use it as the lifecycle hook PodRefused.
func (r *Recorder) PodRefused(err *lifecycle.RefusedError) {
	if err.Rejection != nil {
		// a rejected pod has an event for its rejection
		return
	}
	r.mu.Lock()
	again := r.refusals.recordIfNew(err.Pod.UID, err.Error(), time.Now())
	r.mu.Unlock()
	if again {
		r.enqueueEvent(eventobject.PodReference(err.Pod), "", nil, corev1.EventTypeWarning, reasonFailedValidation, err.Error())
	}
}

// refusalLog holds the refused pod updates that were recorded as events, so that an unchanged error is not
// recorded at each sync.
type refusalLog struct {
	entries map[string]refusalEntry // by pod UID
}

type refusalEntry struct {
	hash [sha256.Size]byte
	at   time.Time
}

// Limits of a refusalLog.
const (
	refusalRepeatAfter = 5 * time.Minute // after this time an unchanged error of a pod is recorded again
	maxRefusalEntries  = 1024            // pods
)

// recordIfNew reports whether an event with this text must be recorded: not if the pod's last event, within five minutes,
// had this text.
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

// dropExpired removes the entries of events that were recorded more than refusalRepeatAfter ago. If maxRefusalEntries or
// more remain, it removes all entries.
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
