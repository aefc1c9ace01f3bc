// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func TestCrashLoop(t *testing.T) { run(t, crashLoop) }
func FuzzCrashLoop(f *testing.F) { fuzz(f, crashLoop) }

// crash is one instance of a container, and the events after its exit.
type crash struct {
	Ran   time.Duration
	Code  int32
	Looks []time.Duration // syncs, since the exit of the container or the previous sync
	Image string          // image in the pod since then
}

// crashes are the instances of one container. Each starts when the back-off allows it.
type crashes []crash

// decisionLog has one line per decision, with its time.
type decisionLog []string

var crashLoop = conformance.Comparison[crashes, decisionLog]{
	Make: func(c *conformance.Choices) (in crashes) {
		for range 1 + c.Int(7) {
			one := crash{Code: conformance.Pick[int32](c, 1, 0, 137), Image: conformance.Pick(c, "v1", "v1", "v1", "v1", "v1", "v1", "v1", "v2")}
			one.Ran = randomPause(c)
			for range c.Int(4) {
				one.Looks = append(one.Looks, randomPause(c))
			}
			in = append(in, one)
		}
		return in
	},
	Kubelet: func(in crashes) decisionLog { return kubeletRestarts(in, true) },
	Ours:    nodeagentRestarts,
	Exceptions: []conformance.Exception[crashes, decisionLog]{{
		Name:   "changed back",
		Reason: "a different image starts a new back-off, even if the container had it before; the kubelet continues the back-off of the earlier image",
		When:   func(in crashes) bool { return !reflect.DeepEqual(in, in.withNewImages()) },
		Want:   func(in crashes, _ decisionLog) decisionLog { return kubeletRestarts(in.withNewImages(), true) },
	}, {
		Name:   "forgotten while in force",
		Reason: "a back-off stays in force until its end; the kubelet removes it ten minutes after the start of the container",
		When: func(in crashes) bool {
			return slices.ContainsFunc(in, func(c crash) bool {
				for _, look := range c.Looks {
					c.Ran += look
				}
				return c.Ran > 5*time.Minute // with a back-off of five minutes, this is ten minutes after the start
			})
		},
		Want: func(in crashes, _ decisionLog) decisionLog { return kubeletRestarts(in.withNewImages(), false) },
	}},
}

// withNewImages returns the same crashes with a new image at each change.
func (in crashes) withNewImages() crashes {
	out, last, n := slices.Clone(in), "v1", 1
	for i := range out {
		if in[i].Image != last {
			last, n = in[i].Image, n+1
		}
		out[i].Image = "v" + strconv.Itoa(n)
	}
	return out
}

// randomPause returns a duration close to a limit of the back-off.
func randomPause(c *conformance.Choices) time.Duration {
	d := time.Duration(conformance.Pick(c, 1, 10, 20, 40, 80, 160, 300, 590, 600)) * time.Second
	switch c.Int(4) {
	case 1:
		return d - time.Nanosecond
	case 2:
		return d + time.Nanosecond
	case 3:
		return time.Duration(c.Uint64() % uint64(d))
	}
	return d
}

// simulateRestarts simulates the restarts of a container. decide gets the pod at a time. It starts the container and returns the
// annotations of its next instance, or returns the end of the back-off and its message.
func simulateRestarts(in crashes, decide func(scene, time.Time) (next map[string]string, until time.Time, message string)) (log decisionLog) {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "p", "default", "u1"
	pod.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "web", Image: "v1"}}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	s := scene{Pod: pod}
	s.Observed.PodIdentity = cri.PodIdentity{UID: "u1", Name: "p", Namespace: "default"}
	s.Observed.Sandboxes = []cri.Sandbox{{ID: "s0", CreatedAt: sceneTime, IPs: []string{"10.0.0.1"}}}
	now, annotations := sceneTime, map[string]string{}
	for i, one := range in {
		instance := cri.Container{
			ID: "web-" + strconv.Itoa(i), Name: "web", PodUID: "u1", SandboxID: "s0", Attempt: uint32(i), Annotations: annotations,
			State: cri.ContainerExited, ExitCode: one.Code, CreatedAt: now, StartedAt: now, FinishedAt: now.Add(one.Ran),
		}
		instance.Annotations[podspec.AnnotationHash] = podspec.Hash(&pod.Spec.Containers[0])
		instance.Annotations[podspec.AnnotationRestartCount] = strconv.Itoa(i)
		s.Observed.Containers = slices.DeleteFunc(append(s.Observed.Containers, instance), func(c cri.Container) bool { return int(c.Attempt) < i })
		now = instance.FinishedAt
		pod.Spec.Containers[0].Image = one.Image
		for look := 0; ; look++ {
			if look < len(one.Looks) {
				now = now.Add(one.Looks[look])
			}
			next, until, message := decide(s, now)
			if until.IsZero() {
				log = append(log, fmt.Sprintf("%s: start", now.Sub(sceneTime)))
				annotations = next
				break
			}
			log = append(log, fmt.Sprintf("%s: wait until %s: %s", now.Sub(sceneTime), until.Sub(sceneTime), message))
			if look >= len(one.Looks) {
				now = until
			}
		}
	}
	return log
}

func nodeagentRestarts(in crashes) decisionLog {
	return simulateRestarts(in, func(s scene, now time.Time) (map[string]string, time.Time, string) {
		a := plan.Plan(plan.State{Pod: s.Pod, Observed: s.Observed, Now: now})
		if len(a.BackOff) == 1 {
			return nil, a.BackOff[0].Until, a.BackOff[0].Message
		}
		return map[string]string{plan.AnnotationCrashLoop: a.Start[0].CrashLoop}, time.Time{}, ""
	})
}

// kubeletRestarts uses the kubelet's decisions, with the back-off of NewMainKubelet. Each housekeeping removes expired
// entries.
func kubeletRestarts(in crashes, housekeeping bool) decisionLog {
	clock := testingclock.NewFakeClock(sceneTime)
	backOff := flowcontrol.NewFakeBackOff(10*time.Second, 5*time.Minute, clock)
	backOff.HasExpiredFunc = func(event, last time.Time, _ time.Duration) bool { return event.Sub(last) > 10*time.Minute }
	ctx := context.Background()
	r := newRuntimeOf(scene{})
	m := r.manager(ctx, scene{})
	return simulateRestarts(in, func(s scene, now time.Time) (map[string]string, time.Time, string) {
		clock.SetTime(now)
		if housekeeping {
			backOff.GC()
		}
		r.pod, r.record.Starts = s.Observed, nil
		r.pod.Containers = slices.Clone(r.pod.Containers)
		result := m.SyncPod(ctx, s.Pod, podStatus(ctx, m, s), nil, backOff, false)
		if len(r.record.Starts) == 1 {
			return map[string]string{}, time.Time{}, ""
		}
		for _, x := range result.SyncResults {
			if x.Action == kubecontainer.StartContainer {
				until, _ := kubecontainer.MinBackoffExpiration(x.Error)
				return nil, until, x.Message
			}
		}
		panic("neither started nor in back-off")
	})
}
