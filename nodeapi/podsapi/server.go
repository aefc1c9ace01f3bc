// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/tokenbucket"
)

// Defaults of [Options]. Rate, burst and queue are those of the kubelet.
const (
	defaultRate     = 100
	defaultBurst    = 10
	defaultQueue    = 100
	defaultWatchers = 100
)

// Limits for clients.
const (
	maxRequest     = 64 << 10
	maxHeaders     = 64 << 10
	maxStreams     = 200 // concurrent calls per connection
	connectTimeout = 10 * time.Second
	stopTimeout    = 5 * time.Second // for calls in progress when the server stops
)

// Pod is a pod with the status that the agent has observed. Both fields must not be modified.
type Pod struct {
	Pod    *corev1.Pod       // as its pod source delivered it last
	Status *corev1.PodStatus // nil: the agent has not found a status yet, and that of Pod is sent
}

// Source returns the pods of the node.
type Source interface {
	// Pods returns the pods listed by the pod sources, in any order, without mirror pods. ready is false until every pod source
	// has delivered its first list; until then calls return FailedPrecondition.
	Pods() (pods []Pod, ready bool)
}

// SourceFunc implements [Source] with a function.
type SourceFunc func() (pods []Pod, ready bool)

// Pods calls f.
func (f SourceFunc) Pods() ([]Pod, bool) { return f() }

// Options configures a [Server]. The zero value has the defaults of the kubelet.
type Options struct {
	Rate        int          // calls of ListPods and GetPod per second; zero means 100
	Burst       int          // calls at once above Rate; zero means 10
	WatchQueue  int          // changes queued per watcher, before it is dropped; zero means 100
	MaxWatchers int          // concurrent watchers; zero means 100
	Logger      *slog.Logger // nil discards
	Hooks       Hooks
}

// Hooks are called by a [Server]. Each hook may be nil, is called from several goroutines, and must not block.
type Hooks struct {
	// CallCompleted is called for each call that passed the rate limit, with the method, such as "ListPods", and the gRPC code,
	// such as "OK". A watch counts as one call.
	CallCompleted func(method, code string)
	// WatcherDropped is called for each watcher that is dropped because its queue is full.
	WatcherDropped func()
}

// Server implements the gRPC service Pods of k8s.io/kubelet/pkg/apis/pods/v1alpha1. Create it with [New].
type Server struct {
	podsv1alpha1.UnimplementedPodsServer
	source   Source
	opts     Options
	limit    *tokenbucket.Bucket
	watchers watchers
	once     runonce.Guard
	stopping chan struct{}  // closed when the server stops
	senders  sync.WaitGroup // of watches; they may outlive their calls
}

// New returns a server for the pods of source. It panics if source is nil.
func New(source Source, opts Options) *Server {
	required.MustArgs("podsapi.New", required.Arg{Name: "source", Value: source, Hint: "a podsapi.SourceFunc"})
	opts.Rate = cmp.Or(max(opts.Rate, 0), defaultRate)
	opts.Burst = cmp.Or(max(opts.Burst, 0), defaultBurst)
	opts.WatchQueue = cmp.Or(max(opts.WatchQueue, 0), defaultQueue)
	opts.MaxWatchers = cmp.Or(max(opts.MaxWatchers, 0), defaultWatchers)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	return &Server{source: source, opts: opts, limit: tokenbucket.New(opts.Rate, opts.Burst), stopping: make(chan struct{})}
}

// Run serves calls on listener until ctx ends. Then it ends all watches, waits at most 5 s for other calls, closes listener and
// returns nil. A second call returns an error.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	if err := s.once.Begin(); err != nil {
		return fmt.Errorf("serve pods on %s: %w; make another server", listener.Addr(), err)
	}
	defer s.once.End()
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
	)
	podsv1alpha1.RegisterPodsServer(g, s)

	done, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-done.Done()
		close(s.stopping)
		stopServer(g)
	})
	err := g.Serve(listener)
	stop()
	wg.Wait()
	s.senders.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve pods on %s: %w", listener.Addr(), err)
}

// stopServer waits until all calls have returned and stops g. After stopTimeout it stops g without waiting.
func stopServer(g *grpc.Server) {
	var wg sync.WaitGroup
	wg.Go(g.GracefulStop)
	timer := time.AfterFunc(stopTimeout, g.Stop)
	wg.Wait()
	timer.Stop()
}

// StatusChanged sends the new status of a pod to all watchers: ADDED for the first status, unless the pod is being deleted, and
// MODIFIED afterwards. Use it as the lifecycle hook StatusChanged. It does not modify or retain its arguments.
func (s *Server) StatusChanged(pod *corev1.Pod, status *corev1.PodStatus) {
	sent := *pod
	sent.Status = *status
	s.reportDropped(s.watchers.sendUpdate(string(pod.UID), pod.DeletionTimestamp != nil, sent.Marshal))
}

// ResourcesReleased sends DELETED for a pod that has terminated and released its resources. Later events of this pod are not
// sent, even if its source still lists it. Use it as the lifecycle hook ResourcesReleased.
func (s *Server) ResourcesReleased(pod cri.PodIdentity) {
	s.reportDropped(s.watchers.sendDeleted(pod.UID, true, encodeDeleted(pod)))
}

// PodRemoved sends DELETED for a pod that was removed from the node. It sends nothing if ResourcesReleased has sent DELETED
// already. Use it as the lifecycle hook PodRemoved.
func (s *Server) PodRemoved(pod cri.PodIdentity) {
	s.reportDropped(s.watchers.sendDeleted(pod.UID, false, encodeDeleted(pod)))
}

// encodeDeleted returns a function that encodes pod as the object of a DELETED event, which has only names and UID.
func encodeDeleted(pod cri.PodIdentity) func() ([]byte, error) {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}}
	return p.Marshal
}

// reportDropped logs the number of dropped watchers and calls the hook WatcherDropped for each. It also logs err, from the
// encoding of a pod.
func (s *Server) reportDropped(dropped int, err error) {
	if err != nil {
		s.opts.Logger.Error("encode pod for the pods API", "error", err)
	}
	if dropped > 0 {
		s.opts.Logger.Warn("watchers of the pods API dropped: their queues are full", "watchers", dropped, "queue", s.opts.WatchQueue)
	}
	for range dropped {
		if s.opts.Hooks.WatcherDropped != nil {
			s.opts.Hooks.WatcherDropped()
		}
	}
}

// sortedPods returns the pods of the source, sorted by UID. If the source is not ready, it returns no pods and false.
func (s *Server) sortedPods() ([]Pod, bool) {
	pods, ready := s.source.Pods()
	if !ready {
		return nil, false
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Pod == nil })
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return pods, true
}

// encodePod returns the protobuf encoding of the pod with p.Status, or with an unconfirmed status if that is nil.
func (p Pod) encodePod() ([]byte, error) {
	sent := *p.Pod
	if p.Status != nil {
		sent.Status = *p.Status
	} else {
		sent.Status = unconfirmedStatus(&p.Pod.Status)
	}
	return sent.Marshal()
}

// unconfirmedStatus returns a copy of a status for a pod that this agent process has not observed yet: not ready, and pending
// without a phase.
func unconfirmedStatus(s *corev1.PodStatus) corev1.PodStatus {
	status := *s
	status.Phase = cmp.Or(status.Phase, corev1.PodPending)
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if i >= 0 {
		status.Conditions = slices.Clone(status.Conditions)
		c := &status.Conditions[i]
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ContainersNotReady", "Kubelet is initializing pod containers"
	}
	return status
}
