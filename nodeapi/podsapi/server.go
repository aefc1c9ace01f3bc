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
)

// The defaults of [Options]. Those of rate, burst and queue are the kubelet's.
const (
	defaultRate     = 100
	defaultBurst    = 10
	defaultQueue    = 100
	defaultWatchers = 100
)

// The bounds of what a client may send and how long a server that ends waits for its clients.
const (
	maxRequest     = 64 << 10
	maxHeaders     = 64 << 10
	maxStreams     = 200 // of one connection
	connectTimeout = 10 * time.Second
	endTimeout     = 5 * time.Second
)

// Pod is a pod as the agent knows it.
type Pod struct {
	Pod    *corev1.Pod       // as its source gave it last. It is not written to
	Status *corev1.PodStatus // that the agent has for it; nil: none yet, and that of Pod counts. It is not written to
}

// Source knows the pods of the node.
type Source interface {
	// Pods returns the pods that are wanted, in any order, without mirror pods. It reports whether every source of pods has said
	// all that it wants; until then no client is answered.
	Pods() (pods []Pod, ready bool)
}

// SourceFunc is a function that is a [Source].
type SourceFunc func() (pods []Pod, ready bool)

// Pods calls the function.
func (f SourceFunc) Pods() ([]Pod, bool) { return f() }

// Options are the settings of a [Server]. The zero value is for production.
type Options struct {
	Rate        int          // calls of ListPods and GetPod in a second; zero: 100
	Burst       int          // of them at once; zero: 10
	WatchQueue  int          // changes that a watcher may be behind; zero: 100
	MaxWatchers int          // at a time; zero: 100
	Logger      *slog.Logger // nil discards
	Hooks       Hooks
}

// Hooks are told what happens. Each may be nil, and is called from several goroutines; it must not block.
type Hooks struct {
	// Answered is called for each call that was not refused by the rate, with its method, as in "ListPods", and the name of its
	// code, as in "OK". A watch is one call, when it has ended.
	CallCompleted func(method, code string)
	// Dropped is called for each watcher that was too far behind.
	WatcherDropped func()
}

// Server answers the calls of the service Pods. Use [New].
type Server struct {
	podsv1alpha1.UnimplementedPodsServer
	source   Source
	opts     Options
	limit    *limiter
	watchers watchers
	once     runonce.Guard
	ending   chan struct{}  // closed when the server ends
	senders  sync.WaitGroup // of streams, which may outlive the calls
}

// New returns a server of the pods of a source. It panics if there is none.
func New(source Source, o Options) *Server {
	required.MustArgs("podsapi.New", required.Arg{Name: "source", Value: source, Hint: "a podsapi.SourceFunc"})
	o.Rate = cmp.Or(max(o.Rate, 0), defaultRate)
	o.Burst = cmp.Or(max(o.Burst, 0), defaultBurst)
	o.WatchQueue = cmp.Or(max(o.WatchQueue, 0), defaultQueue)
	o.MaxWatchers = cmp.Or(max(o.MaxWatchers, 0), defaultWatchers)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Server{source: source, opts: o, limit: newLimiter(o.Rate, o.Burst), ending: make(chan struct{})}
}

// Run answers calls on l until ctx ends, ends the watches, gives other calls 5 s, and returns nil. It closes l. It is called
// once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if err := s.once.Begin(); err != nil {
		return fmt.Errorf("serve pods on %s: %w; make another server", l.Addr(), err)
	}
	defer s.once.End()
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
	)
	podsv1alpha1.RegisterPodsServer(g, s)

	done, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-done.Done()
		close(s.ending)
		end(g)
	})
	err := g.Serve(l)
	stop()
	wg.Wait()
	s.senders.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve pods on %s: %w", l.Addr(), err)
}

// end stops a server once the calls that it is answering have ended, or after endTimeout.
func end(g *grpc.Server) {
	var wg sync.WaitGroup
	wg.Go(g.GracefulStop)
	timer := time.AfterFunc(endTimeout, g.Stop)
	wg.Wait()
	timer.Stop()
}

// Updated sends a pod to all watchers, with its status: as ADDED if it is the first time for the pod, else as MODIFIED. It is
// made for lifecycle's Hooks.StatusChanged. Neither argument is written to, nor used after it returns.
func (s *Server) StatusChanged(pod *corev1.Pod, status *corev1.PodStatus) {
	sent := *pod
	sent.Status = *status
	s.tell(s.watchers.updated(string(pod.UID), pod.DeletionTimestamp != nil, sent.Marshal))
}

// Terminated sends to all watchers that a pod which is still wanted does not run any more and has released its resources, as
// DELETED. Nothing more is sent about it. It is made for lifecycle's Hooks.ResourcesReleased.
func (s *Server) ResourcesReleased(pod cri.PodIdentity) {
	s.tell(s.watchers.removed(pod.UID, true, deleted(pod)))
}

// Removed sends to all watchers that nothing is left of a pod, as DELETED, unless Terminated has. It is made for lifecycle's
// Hooks.PodRemoved.
func (s *Server) PodRemoved(pod cri.PodIdentity) {
	s.tell(s.watchers.removed(pod.UID, false, deleted(pod)))
}

// deleted returns what is sent of a pod with DELETED.
func deleted(pod cri.PodIdentity) func() ([]byte, error) {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}}
	return p.Marshal
}

// tell passes on what became of a change.
func (s *Server) tell(dropped int, err error) {
	if err != nil {
		s.opts.Logger.Error("Encoding a pod for the pods API", "error", err)
	}
	if dropped > 0 {
		s.opts.Logger.Warn("Dropping watchers of the pods API that are too far behind", "watchers", dropped, "queue", s.opts.WatchQueue)
	}
	for range dropped {
		if s.opts.Hooks.WatcherDropped != nil {
			s.opts.Hooks.WatcherDropped()
		}
	}
}

// pods returns the pods of the source by UID, and whether there is an answer yet.
func (s *Server) pods() ([]Pod, bool) {
	pods, ready := s.source.Pods()
	if !ready {
		return nil, false
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Pod == nil })
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return pods, true
}

// encode returns a pod with the status that the agent has for it.
func (p Pod) encode() ([]byte, error) {
	sent := *p.Pod
	if p.Status != nil {
		sent.Status = *p.Status
	} else {
		sent.Status = unconfirmed(&p.Pod.Status)
	}
	return sent.Marshal()
}

// unconfirmed returns what counts of a status that this agent has not confirmed: a pod without a phase is pending, and one is
// not ready because an agent before this one said so.
func unconfirmed(s *corev1.PodStatus) corev1.PodStatus {
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
