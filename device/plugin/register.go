// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/internal/runonce"
)

// registerWait limits how long Register waits until the socket of the plugin accepts a connection. It is shorter than the deadlines that plugins use.
const registerWait = 2 * time.Second

// registrar is the registration service of a host.
type registrar struct {
	api.UnimplementedRegistrationServer

	host *Host
}

// Register handles the registration of a device plugin: it checks the request and connects to the plugin's socket. It returns
// errors with the gRPC code Unknown, as the kubelet does. Source: pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go.
func (r *registrar) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	if hook := r.host.opts.Hooks.RegistrationRequested; hook != nil {
		hook(request.GetResourceName())
	}
	s, err := r.host.acceptRequest(request)
	if err != nil {
		r.host.opts.Logger.Warn("registration of device plugin is refused",
			"resource", shortenText(request.GetResourceName()), "error", shortenText(err.Error()))
	} else {
		err = r.host.connectSession(ctx, s, registerWait)
	}
	if err != nil {
		return nil, status.Error(codes.Unknown, shortenText(err.Error()))
	}
	return &api.Empty{}, nil
}

// acceptRequest checks a Register request. It returns a new session for the plugin, which is not started yet.
func (h *Host) acceptRequest(request *api.RegisterRequest) (*session, error) {
	if err := checkVersion(request.GetVersion()); err != nil {
		return nil, err
	}
	if err := checkResource(request.GetResourceName()); err != nil {
		return nil, err
	}
	if err := checkEndpoint(request.GetEndpoint()); err != nil {
		return nil, fmt.Errorf("register device plugin of resource %s: %w", request.GetResourceName(), err)
	}
	return newSession(request.GetResourceName(), filepath.Join(h.opts.Dir, request.GetEndpoint()), true), nil
}

// connectSession passes s to Run and waits until the plugin is connected. It returns nil after the time wait if the socket has not accepted a
// connection by then; zero means no limit. If ctx ends, it stops s. After Run has returned, it returns an error.
func (h *Host) connectSession(ctx context.Context, s *session, wait time.Duration) error {
	select {
	case h.starts <- s:
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return runonce.NotRun("plugin.Host")
	}
	var dialed, expired <-chan struct{}
	if wait > 0 {
		limit, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		dialed, expired = s.dialed, limit.Done()
	}
	for {
		select {
		case <-s.ready:
			return s.err
		case <-dialed:
			dialed, expired = nil, nil // errors of the calls are the response of Register
		case <-ctx.Done():
			s.stop(errAbandoned)
			return ctx.Err()
		case <-expired:
			if ctx.Err() == nil {
				return nil
			}
			expired = nil
		}
	}
}

// checkVersion returns an error, with the kubelet's text, if version is not a supported version of the device plugin API.
func checkVersion(version string) error {
	if slices.Contains(api.SupportedVersions[:], version) {
		return nil
	}
	return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", version, api.SupportedVersions)
}

// checkResource returns an error, with the kubelet's text, if name is not a valid name of an extended resource.
func checkResource(name string) error {
	if isExtendedResource(name) {
		return nil
	}
	return fmt.Errorf("the ResourceName %q is invalid", name)
}

// maxEndpoint is the largest length of a file name in Linux.
const maxEndpoint = 255

// checkEndpoint returns an error unless endpoint is a valid file name for the plugin's socket in the directory of kubelet.sock.
func checkEndpoint(endpoint string) error {
	switch {
	case endpoint == "":
		return errors.New("endpoint is empty: it is the file name of the plugin's socket")
	case len(endpoint) > maxEndpoint:
		return fmt.Errorf("endpoint %.32q... has %d bytes, more than %d", endpoint, len(endpoint), maxEndpoint)
	case endpoint == "." || endpoint == ".." || strings.ContainsAny(endpoint, "/\x00"):
		return fmt.Errorf("endpoint %q is no file name: the socket must be in the directory of kubelet.sock", endpoint)
	case endpoint == socketName:
		return fmt.Errorf("endpoint %q is the socket of the registration server", endpoint)
	}
	return nil
}
