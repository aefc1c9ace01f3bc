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

// ListPods answers with every pod of the source, by UID.
func (s *Server) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	pods, ready := s.pods()
	if !ready {
		return nil, notReady()
	}
	answer := &podsv1alpha1.ListPodsResponse{Pods: make([][]byte, len(pods))}
	for i, p := range pods {
		var err error
		if answer.Pods[i], err = p.encode(); err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
	}
	return answer, nil
}

// GetPod answers with the pod that has a UID.
func (s *Server) GetPod(_ context.Context, q *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	pods, ready := s.pods()
	if !ready {
		return nil, notReady()
	}
	for _, p := range pods {
		if string(p.Pod.UID) != q.GetPodUID() {
			continue
		}
		data, err := p.encode()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
		return &podsv1alpha1.GetPodResponse{Pod: data}, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", q.GetPodUID())
}

// WatchPods sends all pods, and then changes, until the client leaves, is dropped, or the server ends.
func (s *Server) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	// The watcher comes first, so that no change falls between it and the list.
	w, err := s.watchers.add(s.opts.WatchQueue, s.opts.MaxWatchers)
	if err != nil {
		return status.Errorf(codes.ResourceExhausted, "%v: there are %d", err, s.opts.MaxWatchers)
	}
	defer s.watchers.remove(w)
	pods, ready := s.pods()
	if !ready {
		return notReady()
	}
	// Sending waits for the client as long as the call lasts. The call must be able to end meanwhile.
	sent := make(chan error, 1)
	s.senders.Go(func() { sent <- send(pods, w, stream) })
	select {
	case err := <-sent:
		return err
	case <-w.dropped:
		return status.Error(codes.ResourceExhausted, "watch client channel closed")
	case <-s.ending:
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}

// send sends until the client is not there any more or the call has ended.
func send(pods []Pod, w *watcher, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	for _, p := range pods {
		data, err := p.encode()
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

func notReady() error { return status.Error(codes.FailedPrecondition, "Kubelet is initializing") }

// unary limits calls, and tells what became of those that were admitted.
func (s *Server) unary(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !s.limit.allow(time.Now()) {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	answer, err := handle(ctx, q)
	s.answered(info.FullMethod, err)
	return answer, err
}

// stream tells what became of a watch.
func (s *Server) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := handle(service, stream)
	s.answered(info.FullMethod, err)
	return err
}

func (s *Server) answered(method string, err error) {
	if s.opts.Hooks.CallCompleted == nil {
		return
	}
	code := status.Code(err)
	if errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	s.opts.Hooks.CallCompleted(path.Base(method), code.String())
}
