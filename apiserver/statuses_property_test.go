// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// Despite all faults, the API server finally has the last status of each pod, and the deleted pods are removed. No status
// reaches another pod, and the number of requests is limited.
func TestRandomOperations(t *testing.T) {
	runs := uint64(20)
	if os.Getenv("NODEAGENT_SOAK") != "" {
		runs = 400
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runWithStatuses(t, apiserver.StatusesOptions{Parallel: 1 + int(seed%5)}, func(t *testing.T, r *reporting) {
				w := &operations{reporting: r, rnd: rand.New(rand.NewPCG(seed, 1)), pods: map[string]*corev1.Pod{}}
				for range 150 {
					w.runOperation()
					time.Sleep(time.Duration(w.rnd.IntN(3000)) * time.Millisecond)
				}
				w.server.SetUnavailable(false)
				for _, remove := range w.faults {
					remove()
				}
				time.Sleep(15 * time.Minute) // longer than the period of lists
				w.checkServer(t)
			})
		})
	}
}

// operations are random events at a server and an agent.
type operations struct {
	*reporting
	rnd    *rand.Rand
	pods   map[string]*corev1.Pod // existing pods by name
	made   int
	said   int
	faults []func()
}

func (w *operations) runOperation() {
	name := fmt.Sprint("pod-", w.rnd.IntN(6))
	pod := w.pods[name]
	switch k := w.rnd.IntN(20); {
	case pod == nil && !w.isRemoved(name): // the removed pod of this name may still be at the server
	case pod == nil:
		w.made++
		w.pods[name] = w.bindPod(name, func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint("uid-", w.made)) })
	case k < 10:
		w.said++
		w.setStatus(pod, corev1.PodRunning, w.rnd.IntN(2) == 0, fmt.Sprint(pod.UID, " ", w.said))
	case k < 12: // the pod is deleted and its resources are released at once
		_ = w.server.Delete(pod, nil) // the pod may have been removed by force already
		w.setStatus(pod, corev1.PodFailed, false, fmt.Sprint(pod.UID, " over"))
		w.statuses.ResourcesReleased(identity(pod))
		delete(w.pods, name)
	case k == 12: // removed by force
		_ = w.server.Remove(pod)
		w.locked(func() { delete(w.states, string(pod.UID)) })
		delete(w.pods, name)
	case k == 13:
		w.server.SetUnavailable(w.rnd.IntN(3) == 0)
	case k == 14:
		w.server.DisconnectAll()
	case k == 15 && len(w.faults) > 0:
		w.faults[0]()
		w.faults = w.faults[1:]
	case k < 18:
		w.injectFault()
	case k == 18:
		_ = apiservertest.Change(w.server, "default", name, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		})
	case k == 19:
		_ = apiservertest.Change(w.server, "default", name, func(p *corev1.Pod) { p.Status.Message = "somebody else's" })
	}
}

func (w *operations) injectFault() {
	fault := apiservertest.Fault{Times: 1 + w.rnd.IntN(20)}
	fault.Verb = []string{"patch", "delete", "get", "list", "watch", ""}[w.rnd.IntN(6)]
	switch w.rnd.IntN(6) {
	case 0:
		fault.Code = []int{409, 422, 500, 503, 403}[w.rnd.IntN(5)]
	case 1:
		fault.Code, fault.RetryAfter = 429, time.Duration(w.rnd.IntN(5))*time.Second
	case 2:
		fault.Hang = true
	case 3:
		fault.Disconnect = true
	case 4:
		fault.LoseResponse = fault.Verb == "patch" || fault.Verb == "delete"
	case 5:
		fault.Delay = time.Duration(w.rnd.IntN(8)) * time.Second
	}
	w.faults = append(w.faults, w.server.Inject(fault))
}

func (w *operations) checkServer(t *testing.T) {
	t.Helper()
	w.locked(func() {
		for _, pod := range apiservertest.List[*corev1.Pod](w.server) {
			require.NotNil(t, w.pods[pod.Name], "pod %s is removed from the agent, but not from the server", pod.Name)
			require.Equal(t, w.pods[pod.Name].UID, pod.UID, "pod %s at the server is another instance", pod.Name)
			if state, said := w.states[string(pod.UID)]; said {
				assert.Equal(t, state.Status.Message, pod.Status.Message)
				assert.Equal(t, state.Status.Phase, pod.Status.Phase)
			} else {
				assert.NotContains(t, pod.Status.Message, "uid-", "a pod must not get the status of another pod")
			}
		}
	})
	assert.Len(t, apiservertest.List[*corev1.Pod](w.server), len(w.pods))
	assert.Zero(t, w.statuses.Pending())
	sent := w.countRequests("patch") + w.countRequests("get") + w.countRequests("delete")
	assert.Less(t, sent, 1000, "requests for 150 operations")
}
