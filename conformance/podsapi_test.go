// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	kubepodsapi "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	kubeconfig "k8s.io/kubernetes/pkg/kubelet/config"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

func TestPodsAPI(t *testing.T) { podsAPI.Run(t, flags.AtMost(5_000)) }
func FuzzPodsAPI(f *testing.F) { fuzz(f, podsAPI) }

// podsNode has the pods of a node, and their changes during a watch.
type podsNode struct {
	Ready    bool
	Pods     []*corev1.Pod
	Statuses map[types.UID]corev1.PodStatus // current statuses of some pods
	Get      string                         // UID for GetPod
	Changes  []podChange
}

// podChange is a new status or the removal of a pod.
type podChange struct {
	Pod     int // index in podsNode.Pods
	Status  corev1.PodStatus
	Removed bool
}

// podsAnswers has the results of the pods API for clients.
type podsAnswers struct {
	List, Get, Watch []string // encoded pods, and errors
}

// podsAPI compares the results of the pods gRPC API.
var podsAPI = conformance.Comparison[podsNode, podsAnswers]{
	Make: newPodsNode,
	Kubelet: func(in podsNode) podsAnswers {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		manager := kubepod.NewBasicPodManager()
		manager.SetPods(in.Pods)
		ready := kubeconfig.NewSourcesReady(func(sets.Set[string]) bool { return in.Ready })
		s := kubepodsapi.NewPodsServer(kubepodsapi.NewBroadcaster(ctx), manager, podStatuses(in.Statuses), ready)
		told := make(map[types.UID]bool)
		return askPods(ctx, in, s, func(c podChange) {
			pod := in.Pods[c.Pod]
			if c.Removed {
				delete(told, pod.UID)
				s.OnPodRemoved(klog.FromContext(ctx), pod)
				return
			}
			s.OnPodUpdated(klog.FromContext(ctx), pod, c.Status, !told[pod.UID] && pod.DeletionTimestamp == nil)
			told[pod.UID] = true
		})
	},
	Ours: func(in podsNode) podsAnswers {
		s := podsapi.New(podsapi.SourceFunc(func() (pods []podsapi.Pod, ready bool) {
			for _, p := range in.Pods {
				pod := podsapi.Pod{Pod: p}
				if status, ok := in.Statuses[p.UID]; ok {
					pod.Status = &status
				}
				pods = append(pods, pod)
			}
			return pods, in.Ready
		}), podsapi.Options{})
		return askPods(context.Background(), in, s, func(c podChange) {
			pod := in.Pods[c.Pod]
			if c.Removed {
				s.PodRemoved(cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)})
				return
			}
			s.StatusChanged(pod, &c.Status)
		})
	},
}

// newPodsNode returns a node with up to four pods, some without a current status, and random changes.
func newPodsNode(c *conformance.Choices) podsNode {
	in := podsNode{Ready: !c.OneIn(8), Statuses: make(map[types.UID]corev1.PodStatus)}
	uids := []string{"u9", "u1", "u5", "u10"}
	for i := range c.Int(5) {
		pod := conformance.Pod(c)
		delete(pod.Annotations, "kubernetes.io/config.mirror") // the pods API does not list mirror pods
		pod.Namespace, pod.Name, pod.UID = "ns", fmt.Sprintf("pod-%d", i), types.UID(uids[i])
		if c.OneIn(4) {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		pod.Status = newPodsStatus(c)
		if c.OneIn(2) {
			in.Statuses[pod.UID] = newPodsStatus(c)
		}
		in.Pods = append(in.Pods, pod)
	}
	in.Get = conformance.Pick(c, "", "u1", "u5", "u9", "u10", "é\x00")
	if len(in.Pods) == 0 {
		return in
	}
	for range c.Int(6) {
		in.Changes = append(in.Changes, podChange{Pod: c.Int(len(in.Pods)), Status: newPodsStatus(c), Removed: c.OneIn(4)})
	}
	return in
}

func newPodsStatus(c *conformance.Choices) (s corev1.PodStatus) {
	s.Phase = conformance.Pick(c, "", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded)
	for range c.Int(4) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type:   conformance.Pick(c, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled),
			Status: conformance.Pick(c, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown),
			Reason: conformance.Pick(c, "", "R"), Message: conformance.Pick(c, "", "m"),
		})
	}
	return s
}

// askPods calls every method of a server. It makes the changes after the watch has sent the initial pods.
func askPods(ctx context.Context, in podsNode, s podsv1alpha1.PodsServer, change func(podChange)) (out podsAnswers) {
	list, err := s.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
	out.List = []string{fmt.Sprint(err)}
	for _, p := range list.GetPods() {
		out.List = append(out.List, string(p))
	}
	get, err := s.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: in.Get})
	out.Get = []string{fmt.Sprint(err), string(get.GetPod())}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &podsWatch{ctx: ctx, events: make(chan string)}
	ended := make(chan error, 1)
	go func() { ended <- s.WatchPods(&podsv1alpha1.WatchPodsRequest{}, w) }()
	changed := 0
	for len(out.Watch) < len(in.Pods)+1+len(in.Changes) {
		select {
		case err := <-ended:
			out.Watch = append(out.Watch, fmt.Sprint(err))
			return out
		case e := <-w.events:
			out.Watch = append(out.Watch, e)
		}
		if len(out.Watch) > len(in.Pods) && changed < len(in.Changes) {
			change(in.Changes[changed])
			changed++
		}
	}
	cancel()
	out.Watch = append(out.Watch, fmt.Sprint(<-ended))
	return out
}

// podsWatch is the server side of a watch.
type podsWatch struct {
	grpc.ServerStream
	ctx    context.Context //nolint:containedctx // as in gRPC
	events chan string
}

func (w *podsWatch) Context() context.Context { return w.ctx }

func (w *podsWatch) Send(e *podsv1alpha1.WatchPodsEvent) error {
	select {
	case w.events <- fmt.Sprintf("%s %s", e.GetType(), e.GetPod()):
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// podStatuses implements the kubelet's status provider.
type podStatuses map[types.UID]corev1.PodStatus

func (s podStatuses) GetPodStatus(uid types.UID) (corev1.PodStatus, bool) {
	status, ok := s[uid]
	return status, ok
}
