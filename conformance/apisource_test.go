// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeconfig "k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/qos"
)

func TestAPIPods(t *testing.T) { apiPods.Run(t, flags.AtMost(25_000)) } // each input has up to six lists
func FuzzAPIPods(f *testing.F) { fuzz(f, apiPods) }

// apiLists are consecutive lists of the pods of a node from an API server. A resourceVersion identifies a state of a pod.
type apiLists [][]*corev1.Pod

// apiStep is the result of one list: the desired pods, the names of added, updated and removed pods, and the names of mirror
// pods.
type apiStep struct {
	Pods                  []apiPod
	Added, Changed, Freed []types.UID
	Mirrors               []string
}

// apiPod has the compared fields of a pod.
type apiPod struct {
	UID                        types.UID
	Namespace, Name            string
	Labels, Annotations        map[string]string
	DeletionTimestamp          *metav1.Time
	DeletionGracePeriodSeconds *int64
	Generation                 int64
	Spec                       corev1.PodSpec
	Status                     corev1.PodStatus
}

// apiPods compares the updates that a sequence of API server lists causes. Source: pkg/kubelet/config.
var apiPods = conformance.Comparison[apiLists, []apiStep]{
	Make:    makeAPILists,
	Kubelet: kubeletAPIPods,
	Ours:    ourAPIPods,
	Same:    func(kubelet, ours []apiStep) bool { return equality.Semantic.DeepEqual(kubelet, ours) },
}

func kubeletAPIPods(lists apiLists) (steps []apiStep) {
	source := kubeconfig.NewConformanceSource(kubetypes.ApiserverSource)
	for _, list := range lists {
		told, all := source.Send(context.Background(), copies(list))
		var step apiStep
		for _, pod := range all {
			step.addPod(pod)
		}
		for _, update := range told {
			for _, pod := range update.Pods {
				if kubetypes.IsMirrorPod(pod) {
					continue
				}
				switch update.Op {
				case kubetypes.ADD:
					step.Added = append(step.Added, pod.UID)
				case kubetypes.REMOVE:
					step.Freed = append(step.Freed, pod.UID)
				default:
					step.Changed = append(step.Changed, pod.UID)
				}
			}
		}
		steps = append(steps, step.sorted())
	}
	return steps
}

func ourAPIPods(lists apiLists) (steps []apiStep) {
	var before apiserver.Update
	for _, list := range lists {
		next := apiserver.Merge(before, list, "n1")
		if len(next.Errs) > 0 {
			panic(fmt.Sprint(next.Errs))
		}
		was := map[types.UID]apiPod{}
		for _, pod := range before.Pods {
			was[pod.UID] = apiPodOf(pod)
		}
		var step apiStep
		for _, pod := range slices.Concat(next.Pods, next.Mirrors) {
			step.addPod(pod)
		}
		for _, pod := range next.Pods {
			switch old, known := was[pod.UID]; {
			case !known:
				step.Added = append(step.Added, pod.UID)
			case !equality.Semantic.DeepEqual(old, apiPodOf(pod)):
				step.Changed = append(step.Changed, pod.UID)
			}
			delete(was, pod.UID)
		}
		for uid := range was {
			step.Freed = append(step.Freed, uid)
		}
		before = next
		steps = append(steps, step.sorted())
	}
	return steps
}

func (s *apiStep) addPod(pod *corev1.Pod) {
	if qos.IsMirror(pod) {
		s.Mirrors = append(s.Mirrors, pod.Name)
		return
	}
	s.Pods = append(s.Pods, apiPodOf(pod))
}

// apiPodOf returns the compared fields of a pod. It omits the time at which the pod was first seen.
func apiPodOf(pod *corev1.Pod) apiPod {
	annotations := map[string]string{}
	for key, value := range pod.Annotations {
		if key != kubetypes.ConfigFirstSeenAnnotationKey {
			annotations[key] = value
		}
	}
	return apiPod{
		pod.UID, pod.Namespace, pod.Name, pod.Labels, annotations, pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds, pod.Generation, pod.Spec, pod.Status,
	}
}

func (s apiStep) sorted() apiStep {
	slices.SortFunc(s.Pods, func(a, b apiPod) int { return cmp.Compare(a.UID, b.UID) })
	for _, uids := range [][]types.UID{s.Added, s.Changed, s.Freed} {
		slices.Sort(uids)
	}
	slices.Sort(s.Mirrors)
	return s
}

func copies(pods []*corev1.Pod) []*corev1.Pod {
	made := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		made[i] = pod.DeepCopy()
	}
	return made
}

// makeAPILists adds, changes and removes pods with a few names, by the rules of an API server: a pod never becomes a mirror
// pod or stops being one, each state of a pod has its own resourceVersion, and the generation changes with the spec.
func makeAPILists(c *conformance.Choices) (lists apiLists) {
	server, listed := map[string]*corev1.Pod{}, map[string]*corev1.Pod{}
	version := 0
	for range 1 + c.Int(6) {
		for range c.Int(4) {
			name := conformance.Pick(c, "a", "b", "c")
			version++
			server[name] = changedAPIPod(c, server[name], name, version)
			if server[name] == nil {
				delete(server, name)
			}
		}
		list := []*corev1.Pod{}
		for _, name := range []string{"a", "b", "c"} {
			if pod := server[name]; pod != nil {
				if was := listed[name]; was != nil && was.UID == pod.UID && !equality.Semantic.DeepEqual(was.Spec, pod.Spec) {
					pod.Generation = was.Generation + 1
				}
				list, listed[name] = append(list, pod.DeepCopy()), pod
			}
		}
		lists = append(lists, list)
	}
	return lists
}

// changedAPIPod returns the next state of a pod, or nil if it is removed.
func changedAPIPod(c *conformance.Choices, before *corev1.Pod, name string, version int) *corev1.Pod {
	if before == nil || c.OneIn(6) {
		return newAPIPod(c, name, version)
	}
	pod := before.DeepCopy()
	for range 1 + c.Int(2) {
		if changeAPIPod(c, pod) {
			return nil
		}
	}
	if !equality.Semantic.DeepEqual(before, pod) {
		pod.ResourceVersion = fmt.Sprint(version)
	}
	return pod
}

func newAPIPod(c *conformance.Choices, name string, version int) *corev1.Pod {
	pod := conformance.Pod(c)
	mirror, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(fmt.Sprint(name, "-", version)), ResourceVersion: fmt.Sprint(version),
		Annotations: apiAnnotations(c), Generation: 1,
	}
	if isMirror {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, mirror)
	}
	pod.Spec.NodeName = "n1"
	return pod
}

// apiAnnotations returns annotations that a user may set.
func apiAnnotations(c *conformance.Choices) map[string]string {
	annotations := map[string]string{}
	for range c.Int(4) {
		key := conformance.Pick(c, "own", "kubernetes.io/config.source", "kubernetes.io/config.hash", "kubernetes.io/config.seen", "other")
		annotations[key] = conformance.Pick(c, "", "api", "file", "http", "x")
	}
	return annotations
}

// changeAPIPod changes one field of pod, and reports whether the pod is removed instead.
func changeAPIPod(c *conformance.Choices, pod *corev1.Pod) (gone bool) {
	switch c.Int(9) {
	case 0:
		pod.Status.Phase = conformance.Pick(c, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
	case 1:
		pod.Labels = conformance.Pick(c, nil, map[string]string{"a": "b"}, map[string]string{"a": "c"})
	case 2:
		mirror, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		pod.Annotations = apiAnnotations(c)
		if isMirror {
			pod.Annotations[corev1.MirrorPodAnnotationKey] = mirror
		}
	case 3:
		if len(pod.Spec.Containers) > 0 {
			pod.Spec.Containers[0].Image = conformance.Pick(c, "one", "two")
		}
	case 4:
		at := metav1.NewTime(sceneTime.Add(time.Duration(c.Int(100)) * time.Second))
		grace := int64(c.Int(40))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	case 5:
		return true
	case 6:
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "x", Status: conformance.Pick(c, corev1.ConditionTrue, corev1.ConditionFalse)})
	case 7:
		if len(pod.Spec.Containers) > 0 {
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: conformance.Pick(c, resource.MustParse("123m"), resource.MustParse("456m"))}}
		}
	}
	return false
}
