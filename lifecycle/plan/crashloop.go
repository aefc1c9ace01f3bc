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

// The CrashLoopBackOff of a container. The first restart is immediate. The second waits crashLoopInitial after the exit, and each
// further restart twice as long, up to MaxBackOff. It starts again after an instance that exited more than crashLoopReset after
// its start. Source: pkg/kubelet/kubelet.go (MaxCrashLoopBackOff), client-go util/flowcontrol.
const (
	crashLoopInitial = 10 * time.Second
	MaxBackOff       = 5 * time.Minute
	crashLoopReset   = 10 * time.Minute
)

// AnnotationCrashLoop is the annotation of a container with its back-off, so that a restarted agent continues it. Its format is
// "KEY DELAY UNIX-NANOSECONDS". KEY is a hash of the pod and of the container's name, image and resources. DELAY is the wait
// after the next exit. The time is that of the last restart. An invalid value, or one with an outdated KEY, means no back-off.
const AnnotationCrashLoop = "nodeagent/crash-loop"

// crashLoop is the back-off state of one container instance. The first instance of a container has the zero value.
type crashLoop struct {
	key         string        // from crashLoopKey
	delay       time.Duration // wait after the next exit
	restartedAt time.Time     // when the restart was decided
}

// crashLoopKey returns a hash of the container's image and resources and the pod's identity. A container whose hash changes
// restarts with the shortest back-off.
func crashLoopKey(pod *corev1.Pod, container *corev1.Container) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, strings.Join([]string{
		pod.Name, pod.Namespace, string(pod.UID), container.Name, container.Image, container.Resources.String(),
	}, "/"))
	return strconv.FormatUint(h.Sum64(), 16)
}

// String returns the value of AnnotationCrashLoop.
func (l crashLoop) String() string {
	return fmt.Sprintf("%s %s %d", l.key, l.delay, l.restartedAt.UnixNano())
}

// parseCrashLoop parses the back-off state in AnnotationCrashLoop. An invalid value is the zero state: no delay.
func parseCrashLoop(value string) crashLoop {
	f := strings.Fields(value)
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

// crashLoopOf returns the back-off state of an instance: that of its annotation or, for a restarted instance of a kubelet, which keeps the state in memory,
// the state after as many restarts without a reset. key is the result of crashLoopKey.
func crashLoopOf(instance *cri.Container, key string) crashLoop {
	value, ok := instance.Annotations[AnnotationCrashLoop]
	if ok || instance.Attempt == 0 {
		return parseCrashLoop(value)
	}
	delay := crashLoopInitial
	for range instance.Attempt - 1 {
		if delay *= 2; delay >= MaxBackOff {
			delay = MaxBackOff
			break
		}
	}
	return crashLoop{key: key, delay: delay, restartedAt: instance.StartedAt}
}

// nextRestart returns when a container can restart after last has exited, zero for now, and the next back-off state.
func (l crashLoop) nextRestart(key string, last *cri.Container, now time.Time, maxDelay time.Duration) (loop crashLoop, until time.Time) {
	maxDelay = cmp.Or(maxDelay, MaxBackOff)
	if l.key != key || last.FinishedAt.Sub(l.restartedAt) > crashLoopReset {
		// The container has changed, or ran for long: the back-off starts again.
		return crashLoop{key: key, delay: min(crashLoopInitial, maxDelay), restartedAt: now}, time.Time{}
	}
	l.delay = min(l.delay, maxDelay)
	ended := last.FinishedAt
	if ended.Before(l.restartedAt) { // the exit time is unknown; the delay must not be lost
		ended = l.restartedAt
	}
	if until := ended.Add(l.delay); now.Before(until) && !ended.After(now) {
		return l, until
	}
	return crashLoop{key: key, delay: min(2*l.delay, maxDelay), restartedAt: now}, time.Time{}
}
