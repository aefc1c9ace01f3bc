// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletlifecycle "k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// sleepInput is a sleep hook, and the timeout of its context.
type sleepInput struct {
	Seconds int64
	Cut     time.Duration
}

// sleepResult is the duration and the result of a sleep.
type sleepResult struct {
	Took    metav1.Duration
	Message string // empty: success
}

// TestHookSleep runs sleep hooks in virtual time.
func TestHookSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conformance.Comparison[sleepInput, sleepResult]{
			Make: func(c *conformance.Choices) sleepInput {
				return sleepInput{
					Seconds: conformance.Pick(c, 5, 0, 1, 30, c.Int64(), math.MaxInt64, math.MinInt64, longestSleep, longestSleep+1, -longestSleep-1),
					Cut:     time.Duration(c.Int(100))*time.Second + 500*time.Millisecond, // never equal to the end of the sleep
				}
			},
			Kubelet: kubeletSleeps,
			Ours:    nodeagentSleeps,
			Exceptions: []conformance.Exception[sleepInput, sleepResult]{{
				Name:   "longer than a Duration",
				Reason: "a sleep beyond a Duration lasts until its context ends, and a negative one returns at once",
				When:   func(n sleepInput) bool { return n.Seconds > longestSleep || n.Seconds < -longestSleep },
				Want: func(n sleepInput, _ sleepResult) sleepResult {
					want := kubeletSleeps(sleepInput{Seconds: min(max(n.Seconds, 0), longestSleep), Cut: n.Cut})
					want.Message = strings.Replace(want.Message, fmt.Sprintf("(%d)", longestSleep), fmt.Sprintf("(%d)", n.Seconds), 1)
					return want
				},
			}},
		}.Run(t, flags)
	})
}

// longestSleep is the number of whole seconds in the largest Duration.
const longestSleep = math.MaxInt64 / int64(time.Second)

func kubeletSleeps(n sleepInput) sleepResult {
	runner := kubeletlifecycle.NewHandlerRunner(nil, nil, nil, nil)
	return n.sleepWith(func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, h *corev1.LifecycleHandler) string {
		message, err := runner.Run(ctx, kubecontainer.ContainerID{}, pod, c, h)
		if (err != nil) != (message != "") {
			panic("an error without a message, or a message without an error")
		}
		return message
	})
}

func nodeagentSleeps(n sleepInput) sleepResult {
	cut := false
	runner := hook.New(hook.Options{Hooks: hook.Hooks{SleepTerminated: func(hook.Call) { cut = true }}})
	took := n.sleepWith(func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, h *corev1.LifecycleHandler) string {
		if err := runner.Run(ctx, hook.Call{Pod: pod, Container: c}, h); err != nil {
			return err.Error()
		}
		return ""
	})
	if cut != (took.Message != "") {
		panic("SleepTerminated must be called exactly for a terminated sleep")
	}
	return took
}

// sleepWith runs the sleep on one side.
func (n sleepInput) sleepWith(run func(context.Context, *corev1.Pod, *corev1.Container, *corev1.LifecycleHandler) string) sleepResult {
	ctx, cancel := context.WithTimeout(context.Background(), n.Cut)
	defer cancel()
	began := time.Now()
	handler := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: n.Seconds}}
	message := run(ctx, &corev1.Pod{}, &corev1.Container{Name: "app"}, handler)
	return sleepResult{Took: metav1.Duration{Duration: time.Since(began)}, Message: message}
}

// A hook whose server does not respond completely ends at its timeout in nodeagent. The kubelet waits for the server.
func TestHookHangs(t *testing.T) {
	s := newHookStage(t)
	for _, path := range []string{"/silent", "/stall/200"} {
		t.Run(path, func(t *testing.T) {
			h := hookInput{Pod: "web"}
			h.Handler.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(s.plain)}
			soon := func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			ctx, cancel := soon()
			defer cancel()
			if _, _, err := s.byNodeagent(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nodeagent returned %v", err)
			}
			ctx, cancel = soon()
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _, _ = s.byKubelet(ctx, h)
			}()
			<-ctx.Done()
			select {
			case <-ended:
				t.Error("no difference anymore: the kubelet's hook ends with its context, too")
			case <-time.After(200 * time.Millisecond):
			}
			s.hangUp()
			<-ended
		})
	}
}
