// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"errors"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// ListPods returns all pods of the source, sorted by UID.
func (s *Server) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	pods, ready := s.sortedPods()
	if !ready {
		return nil, notReadyError()
	}
	answer := &podsv1alpha1.ListPodsResponse{Pods: make([][]byte, len(pods))}
	for i, p := range pods {
		var err error
		if answer.Pods[i], err = p.encodePod(); err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
	}
	return answer, nil
}

// GetPod returns the pod with a UID.
func (s *Server) GetPod(_ context.Context, q *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	pods, ready := s.sortedPods()
	if !ready {
		return nil, notReadyError()
	}
	for _, p := range pods {
		if string(p.Pod.UID) != q.GetPodUID() {
			continue
		}
		data, err := p.encodePod()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
		return &podsv1alpha1.GetPodResponse{Pod: data}, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", q.GetPodUID())
}

// WatchPods sends an event for each existing pod, and then an event for each change. It returns when the client disconnects,
// when it is dropped because it is too slow, or when the server stops.
func (s *Server) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	// The watcher is added before listing, so that no change is lost.
	w, err := s.watchers.addWatcher(s.opts.WatchQueue, s.opts.MaxWatchers)
	if err != nil {
		return status.Errorf(codes.ResourceExhausted, "%v: there are %d", err, s.opts.MaxWatchers)
	}
	defer s.watchers.removeWatcher(w)
	pods, ready := s.sortedPods()
	if !ready {
		return notReadyError()
	}
	// Send blocks while the client does not read. On a goroutine of its own it does not delay the end of the call.
	sent := make(chan error, 1)
	s.senders.Go(func() { sent <- sendEvents(pods, w, stream) })
	select {
	case err := <-sent:
		return err
	case <-w.dropped:
		return status.Error(codes.ResourceExhausted, "watch client channel closed")
	case <-s.stopping:
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}

// sendEvents sends ADDED for each given pod, INITIAL_SYNC_COMPLETE, and then the events of the watcher, until the call ends.
func sendEvents(pods []Pod, w *watcher, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	for _, p := range pods {
		data, err := p.encodePod()
		if err != nil {
			return status.Errorf(codes.Internal, "error marshalling initial watch event pod: %v", err)
		}
		if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: data}); err != nil {
			return err
		}
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event := <-w.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

func notReadyError() error { return status.Error(codes.FailedPrecondition, "Kubelet is initializing") }

// interceptUnary runs a ListPods or GetPod call. It rejects calls beyond the rate limit, and passes the result of all other
// calls to Hooks.CallCompleted.
func (s *Server) interceptUnary(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !s.limit.TakeToken(time.Now()) {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	answer, err := handle(ctx, q)
	s.callCompleted(info.FullMethod, err)
	return answer, err
}

// interceptStream runs a WatchPods call, and passes its result to Hooks.CallCompleted.
func (s *Server) interceptStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := handle(service, stream)
	s.callCompleted(info.FullMethod, err)
	return err
}

func (s *Server) callCompleted(method string, err error) {
	if s.opts.Hooks.CallCompleted == nil {
		return
	}
	code := status.Code(err)
	if errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	s.opts.Hooks.CallCompleted(path.Base(method), code.String())
}
