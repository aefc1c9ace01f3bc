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

// nap is a sleep, and when its context ends.
type nap struct {
	Seconds int64
	Cut     time.Duration
}

// napped is how a sleep ended, and when.
type napped struct {
	Took    metav1.Duration
	Message string // empty: well
}

// TestHookSleep sleeps in virtual time.
func TestHookSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conformance.Comparison[nap, napped]{
			Make: func(c *conformance.Choices) nap {
				return nap{
					Seconds: conformance.Pick(c, 5, 0, 1, 30, c.Int64(), math.MaxInt64, math.MinInt64, longestSleep, longestSleep+1, -longestSleep-1),
					Cut:     time.Duration(c.Int(100))*time.Second + 500*time.Millisecond, // and not when the sleep ends
				}
			},
			Kubelet: kubeletNaps,
			Ours:    nodeagentNaps,
			Exceptions: []conformance.Exception[nap, napped]{{
				Name:   "longer than a Duration",
				Reason: "a sleep of centuries is not over before its context is, and one of less than nothing is over at once",
				When:   func(n nap) bool { return n.Seconds > longestSleep || n.Seconds < -longestSleep },
				Want: func(n nap, _ napped) napped {
					want := kubeletNaps(nap{Seconds: min(max(n.Seconds, 0), longestSleep), Cut: n.Cut})
					want.Message = strings.Replace(want.Message, fmt.Sprintf("(%d)", longestSleep), fmt.Sprintf("(%d)", n.Seconds), 1)
					return want
				},
			}},
		}.Run(t, flags)
	})
}

// longestSleep is how many seconds a Duration holds.
const longestSleep = math.MaxInt64 / int64(time.Second)

func kubeletNaps(n nap) napped {
	runner := kubeletlifecycle.NewHandlerRunner(nil, nil, nil, nil)
	return n.take(func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, h *corev1.LifecycleHandler) string {
		message, err := runner.Run(ctx, kubecontainer.ContainerID{}, pod, c, h)
		if (err != nil) != (message != "") {
			panic("an error has a message")
		}
		return message
	})
}

func nodeagentNaps(n nap) napped {
	cut := false
	runner := hook.New(hook.Options{Hooks: hook.Hooks{SleepTerminated: func(hook.Call) { cut = true }}})
	took := n.take(func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, h *corev1.LifecycleHandler) string {
		if err := runner.Run(ctx, hook.Call{Pod: pod, Container: c}, h); err != nil {
			return err.Error()
		}
		return ""
	})
	if cut != (took.Message != "") {
		panic("a sleep that is cut short is told, and no other")
	}
	return took
}

// take sleeps by one side or the other.
func (n nap) take(run func(context.Context, *corev1.Pod, *corev1.Container, *corev1.LifecycleHandler) string) napped {
	ctx, cancel := context.WithTimeout(context.Background(), n.Cut)
	defer cancel()
	began := time.Now()
	handler := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: n.Seconds}}
	message := run(ctx, &corev1.Pod{}, &corev1.Container{Name: "app"}, handler)
	return napped{Took: metav1.Duration{Duration: time.Since(began)}, Message: message}
}

// A server that does not answer, or not to the end, holds the kubelet until it does, and nodeagent until its context ends.
func TestHookHangs(t *testing.T) {
	s := newHookStage(t)
	for _, path := range []string{"/silent", "/stall/200"} {
		t.Run(path, func(t *testing.T) {
			h := hooking{Pod: "web"}
			h.Handler.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(s.plain)}
			soon := func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			ctx, cancel := soon()
			defer cancel()
			if _, _, err := s.byNodeagent(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nodeagent says %v", err)
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
				t.Error("no difference any more: the kubelet ends with the context too")
			case <-time.After(200 * time.Millisecond):
			}
			s.hangUp()
			<-ended
		})
	}
}
