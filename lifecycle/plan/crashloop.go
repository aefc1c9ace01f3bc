// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// The back-off of a container that keeps exiting: the first restart is immediate, the next waits crashLoopInitial
// after the exit, then twice as long each time, up to MaxBackOff. An instance that exited more than crashLoopReset after
// it was started starts over. Source: pkg/kubelet/kubelet.go (MaxCrashLoopBackOff), client-go util/flowcontrol.
const (
	crashLoopInitial = 10 * time.Second
	MaxBackOff       = 5 * time.Minute
	crashLoopReset   = 10 * time.Minute
)

// AnnotationCrashLoop carries the back-off of a container from one instance to the next, so that a restart of the agent
// does not forget it: "KEY DELAY UNIX-NANOSECONDS", where the key is a hash of the pod and of the container's name,
// image and resources, the delay is what the next exit will wait and the time is when the restart was decided. It stands
// on every container that replaces an exited one. One that cannot be read, or of another key, is no back-off.
const AnnotationCrashLoop = "nodeagent/crash-loop"

// crashLoop is the back-off state that a container was started with. The zero value is that of a first start.
type crashLoop struct {
	key         string
	delay       time.Duration
	restartedAt time.Time
}

// crashLoopKey identifies what the back-off is about: a change of image or resources begins a new one.
func crashLoopKey(pod *corev1.Pod, c *corev1.Container) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, strings.Join([]string{
		pod.Name, pod.Namespace, string(pod.UID), c.Name, c.Image, c.Resources.String(),
	}, "/"))
	return strconv.FormatUint(h.Sum64(), 16)
}

// String returns the annotation's value.
func (l crashLoop) String() string {
	return fmt.Sprintf("%s %s %d", l.key, l.delay, l.restartedAt.UnixNano())
}

// parseCrashLoop reads the annotation. What does not parse is a first start: a runtime that mangles annotations costs
// a restart too early, never a container that does not come back.
func parseCrashLoop(s string) crashLoop {
	f := strings.Fields(s)
	if len(f) != 3 {
		return crashLoop{}
	}
	delay, err := time.ParseDuration(f[1])
	if err != nil || delay < 0 {
		return crashLoop{}
	}
	begun, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return crashLoop{}
	}
	return crashLoop{key: f[0], delay: min(delay, MaxBackOff), restartedAt: time.Unix(0, begun)}
}

// next decides when a container whose newest exited instance is last may start again. Until that time the delay in force
// is returned with it; when it may start now, until is zero and loop is the state for the new instance. No delay is longer
// than most, which is MaxBackOff if it is zero.
func (l crashLoop) nextRestart(key string, last *cri.Container, now time.Time, maxDelay time.Duration) (loop crashLoop, until time.Time) {
	maxDelay = cmp.Or(maxDelay, MaxBackOff)
	if l.key != key || last.FinishedAt.Sub(l.restartedAt) > crashLoopReset {
		return crashLoop{key: key, delay: min(crashLoopInitial, maxDelay), restartedAt: now}, time.Time{}
	}
	l.delay = min(l.delay, maxDelay)
	ended := last.FinishedAt
	if ended.Before(l.restartedAt) { // the runtime does not know when; it must not cost the pause
		ended = l.restartedAt
	}
	if until := ended.Add(l.delay); now.Before(until) && !ended.After(now) {
		return l, until
	}
	return crashLoop{key: key, delay: min(2*l.delay, maxDelay), restartedAt: now}, time.Time{}
}
