// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// reporting is an agent with settable statuses, a server and a Statuses.
type reporting struct {
	t        *testing.T
	server   *apiservertest.Server
	source   *apiserver.Source
	statuses *apiserver.Statuses

	mu      sync.Mutex // guards the fields below
	states  map[string]lifecycle.PodState
	may     map[string]bool // results of MayRun for pods without a state
	errs    []error
	removed []string
}

// runWithStatuses runs a test in virtual time with a source and its statuses.
func runWithStatuses(t *testing.T, o apiserver.StatusesOptions, test func(t *testing.T, r *reporting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &reporting{
			t: t, server: apiservertest.NewServer(apiservertest.Options{}), states: map[string]lifecycle.PodState{}, may: map[string]bool{},
		}
		defer r.server.Close()
		var err error
		r.source, err = apiserver.New(r.server.Config(), apiserver.Options{NodeName: "n1"})
		require.NoError(t, err)
		o.Pods, o.MayRun, o.Rand = r.pods, r.mayRun, func() float64 { return 0.5 }
		o.Hooks.Error = func(_ cri.PodIdentity, err error, _ time.Duration) { r.locked(func() { r.errs = append(r.errs, err) }) }
		o.Hooks.PodDeleted = func(pod cri.PodIdentity) { r.locked(func() { r.removed = append(r.removed, pod.UID) }) }
		r.statuses, err = r.source.Statuses(o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { assert.NoError(t, r.source.Pods().Run(ctx, func(apiserver.Update) {})) })
		wg.Go(func() { assert.NoError(t, r.statuses.Run(ctx)) })
		test(t, r)
	})
}

func (r *reporting) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *reporting) pods() (states []lifecycle.PodState) {
	r.locked(func() {
		for _, state := range r.states {
			states = append(states, state)
		}
	})
	return states
}

func (r *reporting) mayRun(uid string) (may bool) {
	r.locked(func() { may = r.may[uid] })
	return may
}

// bindPod creates a pod that is bound to the node.
func (r *reporting) bindPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	r.t.Helper()
	grace := int64(30)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(pod)
	}
	require.NoError(r.t, r.server.Put(pod))
	pod, _ = apiservertest.Get[*corev1.Pod](r.server, "default", name)
	return pod
}

// setStatus sets the agent's status of a pod.
func (r *reporting) setStatus(pod *corev1.Pod, phase corev1.PodPhase, ready bool, message string) {
	start := metav1.NewTime(time.Now()).Rfc3339Copy()
	st := &corev1.PodStatus{
		Phase: phase, Message: message, StartTime: &start, ObservedGeneration: pod.Generation, QOSClass: corev1.PodQOSBestEffort,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: ready}},
		Conditions: []corev1.PodCondition{
			{
				Type: corev1.PodReady, LastTransitionTime: start,
				Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready],
			},
		},
	}
	r.locked(func() { r.states[string(pod.UID)] = lifecycle.PodState{Pod: identity(pod), Spec: pod, Status: st} })
	r.statuses.Changed(pod, st)
}

func identity(pod *corev1.Pod) cri.PodIdentity {
	return cri.PodIdentity{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
}

// getPod returns a pod of the server.
func (r *reporting) getPod(name string) *corev1.Pod {
	r.t.Helper()
	pod, ok := apiservertest.Get[*corev1.Pod](r.server, "default", name)
	require.True(r.t, ok, name)
	return pod
}

func (r *reporting) isRemoved(name string) bool {
	_, ok := apiservertest.Get[*corev1.Pod](r.server, "default", name)
	return !ok
}

// countRequests returns the number of requests for pods with a verb.
func (r *reporting) countRequests(verb string) int {
	return r.server.CountRequests(apiservertest.Match{Verb: verb, Resource: "pods"})
}

func TestOneRequestForEachChange(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
		})
		synctest.Wait()
		for i, message := range []string{"a", "b", "c"} {
			r.setStatus(pod, corev1.PodRunning, true, message)
			time.Sleep(time.Minute)
			assert.Equal(t, i+1, r.countRequests("patch"), message)
			assert.Equal(t, message, r.getPod("web").Status.Message)
		}
		assert.Zero(t, r.countRequests("get"))
		st := r.getPod("web").Status
		assert.Equal(t, corev1.PodConditionType("example.com/gate"), st.Conditions[0].Type)
		assert.Equal(t, "gpu", st.ResourceClaimStatuses[0].Name)
		assert.Zero(t, r.statuses.Pending())

		r.setStatus(pod, corev1.PodRunning, true, "c") // an equal status, as a restarted agent reports it
		time.Sleep(time.Minute)
		assert.Equal(t, 3, r.countRequests("patch"))
		require.NoError(t, apiservertest.Change(r.server, "default", "web", func(p *corev1.Pod) { p.Status.Message = "somebody else's" }))
		time.Sleep(time.Minute)
		assert.Equal(t, "c", r.getPod("web").Status.Message, "a status that another client changed is replaced")
		assert.Equal(t, 4, r.countRequests("patch"))
	})
}

func TestNewestStatusIsSent(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", nil)
		synctest.Wait()
		defer r.server.Delay("patch", "pods", time.Second)()
		for i := range 50 {
			r.setStatus(pod, corev1.PodRunning, true, fmt.Sprint("message ", i))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		assert.Equal(t, "message 49", r.getPod("web").Status.Message)
		assert.Equal(t, 2, r.countRequests("patch"), "only the first and the last status are sent")
	})
}

func TestDeletedPodIsRemovedAfterResourcesReleased(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", nil)
		r.setStatus(pod, corev1.PodRunning, true, "")
		time.Sleep(time.Second)
		require.NoError(t, r.server.Delete(pod, nil))
		time.Sleep(time.Minute)
		assert.Zero(t, r.countRequests("delete"), "a running pod is not removed")
		r.statuses.ResourcesReleased(identity(pod))
		time.Sleep(time.Minute)
		assert.Zero(t, r.countRequests("delete"), "a pod without a terminal phase is not removed")
		r.setStatus(pod, corev1.PodSucceeded, false, "")
		time.Sleep(100 * time.Millisecond)
		assert.True(t, r.isRemoved("web"))
		requests := r.server.Requests(apiservertest.Match{Resource: "pods"})
		last := requests[len(requests)-2:]
		assert.Equal(t, []string{"patch", "delete"}, []string{last[0].Verb, last[1].Verb})
		r.locked(func() { assert.Equal(t, []string{"uid-web"}, r.removed) })
		time.Sleep(time.Hour)
		assert.Equal(t, 1, r.countRequests("delete"))
	})
}

// A pod object with a finalizer is not removed repeatedly.
func TestPodWithFinalizerIsRemovedOnce(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("job", func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} })
		require.NoError(t, r.server.Delete(pod, nil))
		r.setStatus(pod, corev1.PodFailed, false, "")
		r.statuses.ResourcesReleased(identity(pod))
		time.Sleep(time.Hour)
		assert.Equal(t, corev1.PodFailed, r.getPod("job").Status.Phase)
		assert.Equal(t, 1, r.countRequests("delete"))
	})
}

func TestMirrorPodHasStatusOfStaticPod(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		mirror := r.bindPod("web-n1", func(p *corev1.Pod) {
			p.UID, p.Annotations = "mirror", map[string]string{
				corev1.MirrorPodAnnotationKey: "static", "kubernetes.io/config.hash": "static", "kubernetes.io/config.source": "file",
			}
		})
		static := mirror.DeepCopy()
		static.UID = "static"
		delete(static.Annotations, corev1.MirrorPodAnnotationKey)
		r.setStatus(static, corev1.PodRunning, true, "up")
		time.Sleep(time.Second)
		assert.Equal(t, "up", r.getPod("web-n1").Status.Message)

		r.setStatus(static, corev1.PodSucceeded, false, "down")
		r.statuses.ResourcesReleased(identity(static))
		require.NoError(t, r.server.Delete(mirror, nil))
		time.Sleep(time.Minute)
		assert.Zero(t, r.countRequests("delete"), "a mirror pod is removed by its creator")

		require.NoError(t, r.server.Remove(mirror))
		again := mirror.DeepCopy()
		again.UID, again.ResourceVersion, again.Status = "another", "", corev1.PodStatus{}
		require.NoError(t, r.server.Put(again))
		time.Sleep(time.Second)
		assert.Equal(t, "down", r.getPod("web-n1").Status.Message, "a recreated mirror pod gets the status too")
	})
}

// While the watch has not reported that a pod was replaced, the new pod must not get the status of the old one.
func TestStatusNeverReachesNewPodOfSameName(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", nil)
		r.setStatus(pod, corev1.PodRunning, true, "old")
		time.Sleep(time.Second)
		hang := r.server.Hang("watch", "pods")
		r.server.DisconnectAll()
		require.NoError(t, r.server.Remove(pod))
		other := r.bindPod("web", func(p *corev1.Pod) { p.UID = "other" })
		r.setStatus(pod, corev1.PodFailed, false, "older than the new pod")
		time.Sleep(20 * time.Second)
		assert.Equal(t, other.Status, r.getPod("web").Status)
		assert.LessOrEqual(t, r.countRequests("patch")+r.countRequests("get"), 4)
		hang()
		r.setStatus(other, corev1.PodRunning, true, "new")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "new", r.getPod("web").Status.Message)
	})
}

// The watch is silent for an hour: the last response is trusted for one minute.
func TestStatusesAreSentWithSilentWatch(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", nil)
		synctest.Wait()
		remove := r.server.Hang("watch", "pods")
		removeList := r.server.Hang("list", "pods")
		r.server.DisconnectAll()
		r.setStatus(pod, corev1.PodRunning, true, "once")
		time.Sleep(time.Hour)
		assert.Equal(t, "once", r.getPod("web").Status.Message)
		assert.LessOrEqual(t, r.countRequests("patch"), 17, "retries start after 10 s, with doubled pauses up to 5 minutes")
		remove()
		removeList()
		time.Sleep(time.Minute)
		assert.Zero(t, r.statuses.Pending())
	})
}

func TestStatusesAreSentAfterAPIServerReturns(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		var pods []*corev1.Pod
		for i := range 20 {
			pods = append(pods, r.bindPod(fmt.Sprint("pod-", i), nil))
			r.setStatus(pods[i], corev1.PodRunning, true, "")
		}
		time.Sleep(time.Second)
		r.server.ForgetRequests()
		r.server.SetUnavailable(true)
		for i := range 120 {
			for _, pod := range pods {
				r.setStatus(pod, corev1.PodRunning, i%2 == 0, fmt.Sprint("minute ", i))
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 20, r.statuses.Pending())
		r.server.SetUnavailable(false)
		time.Sleep(15 * time.Second)
		for _, pod := range pods {
			assert.Equal(t, "minute 119", r.getPod(pod.Name).Status.Message)
		}
		assert.Equal(t, 20, r.countRequests("patch"), "one request per pod, with all its changes")
		assert.Zero(t, r.statuses.Pending())
	})
}

func TestStatusesAreSentDespiteFaults(t *testing.T) {
	for name, fault := range map[string]apiservertest.Fault{
		"409":                  {Code: 409},
		"429 with Retry-After": {Code: 429, RetryAfter: 3 * time.Second},
		"500":                  {Code: 500},
		"422":                  {Code: 422},
		"hang":                 {Hang: true},
		"cut":                  {Disconnect: true},
		"lost answers":         {LoseResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
				pods := make([]*corev1.Pod, 10)
				for i := range pods {
					pods[i] = r.bindPod(fmt.Sprint("pod-", i), nil)
				}
				synctest.Wait()
				fault.Match = apiservertest.Match{Verb: "patch", Resource: "pods"}
				remove := r.server.Inject(fault)
				deleting := fault
				deleting.Verb = "delete"
				removeToo := r.server.Inject(deleting)
				for i := range 60 {
					for k, pod := range pods[:9] {
						r.setStatus(pod, corev1.PodRunning, i%3 == 0, fmt.Sprint(i, k))
					}
					time.Sleep(time.Second)
				}
				require.NoError(t, r.server.Delete(pods[9], nil))
				r.setStatus(pods[9], corev1.PodFailed, false, "")
				r.statuses.ResourcesReleased(identity(pods[9]))
				time.Sleep(time.Minute)
				most := 10 * 2 * 120 / 3 // two verbs, each once in three seconds
				if fault.LoseResponse || fault.Code == 422 {
					most *= 2 // an accepted or changed status is sent without a back-off
				}
				assert.LessOrEqual(t, len(r.server.Requests(apiservertest.Match{Resource: "pods"})), most)
				remove()
				removeToo()
				time.Sleep(6 * time.Minute)
				for k, pod := range pods[:9] {
					assert.Equal(t, fmt.Sprint(59, k), r.getPod(pod.Name).Status.Message)
				}
				assert.True(t, r.isRemoved("pod-9"))
				assert.Zero(t, r.statuses.Pending())
			})
		})
	}
}

// The API server always stores a different status.
func TestStatusThatServerChangesIsRepeatedWithBackOff(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", nil)
		r.setStatus(pod, corev1.PodRunning, true, "x")
		for range 100 {
			time.Sleep(time.Second)
			require.NoError(t, apiservertest.Change(r.server, "default", "web", func(p *corev1.Pod) { p.Status.Message = "" }))
		}
		assert.LessOrEqual(t, r.countRequests("patch"), 6)
		r.setStatus(pod, corev1.PodRunning, true, "y")
		time.Sleep(time.Second)
		assert.Equal(t, "y", r.getPod("web").Status.Message, "a changed status is sent without the back-off")
	})
}
