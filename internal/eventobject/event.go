// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventobject builds the Event objects of a node agent, as the kubelet's event recorder names and fills them. It sends nothing.
package eventobject

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
)

// Constants of the events.
const (
	// component is the source.component of all events, because tools select events of a node agent by it.
	component = "kubelet"
	// maxMessage is the largest message of an event, in bytes. The kubelet has no limit.
	maxMessage = 4096
	// maxName is the largest length of an object name in Kubernetes.
	maxName = 253
)

// New returns an event with count 1 about the referenced object. node is the name of the reporting node. number makes the name of the
// event unique.
func New(about corev1.ObjectReference, node, eventType, reason, message string, now time.Time, number int64) *corev1.Event {
	timestamp := metav1.Time{Time: now}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: buildName(about.Name, number), Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		InvolvedObject: about, Type: eventType, Reason: reason, Message: truncateMessage(message),
		Source:         corev1.EventSource{Component: component, Host: node},
		FirstTimestamp: timestamp, LastTimestamp: timestamp, Count: 1,
		ReportingController: component, ReportingInstance: node,
	}
}

// buildName returns the name of an event: the name of the object, a dot, and the number in hexadecimal. A long object name is
// shortened.
func buildName(object string, number int64) string {
	suffix := fmt.Sprintf(".%x", number)
	if maxLen := maxName - len(suffix); len(object) > maxLen {
		object = strings.TrimRight(object[:maxLen], "-.")
	}
	return object + suffix
}

// truncateMessage returns the message as valid UTF-8 of at most maxMessage bytes.
func truncateMessage(message string) string {
	const more = "..."
	if message = strings.ToValidUTF8(message, "\uFFFD"); len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

// PodReference returns a reference to a pod for its events.
func PodReference(pod cri.PodIdentity) corev1.ObjectReference {
	// The UID of a static pod is not that of its mirror pod. kubectl describe finds the events by the hash annotation of the
	// mirror pod.
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
}
