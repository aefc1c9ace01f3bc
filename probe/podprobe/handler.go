// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/expand"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// proberBuilder creates the probers of one container.
type proberBuilder struct {
	podIP       string
	container   *corev1.Container
	containerID string
	options     Options
}

// failWithoutContainer is the prober for a container that does not exist or has no address. It is never called.
func failWithoutContainer(context.Context) (probe.Result, error) {
	return probe.Result{}, errors.New("there is no container to probe yet")
}

// newFailingProber returns the prober for a probe that can never run. Its result is always Failure, with the text of the
// given error.
func newFailingProber(reason error) probe.Prober {
	return probe.Func(func(context.Context) (probe.Result, error) {
		return probe.NewResult(probe.Failure, reason.Error()), nil
	})
}

// newProber creates the prober for a probe spec, by its first handler in the kubelet's order. With an error, it returns a prober
// that always fails. Source: runProbe in pkg/kubelet/prober/prober.go.
func (h proberBuilder) newProber(spec *corev1.Probe) (prober probe.Prober, err error) {
	var name string
	switch {
	case h.containerID == "":
		return probe.Func(failWithoutContainer), nil
	case spec.Exec != nil:
		name = "exec"
		prober, err = h.newExecProber(spec.Exec)
	case spec.HTTPGet != nil:
		name = "httpGet"
		prober, err = h.newHTTPProber(spec.HTTPGet)
	case spec.TCPSocket != nil:
		name = "tcpSocket"
		prober, err = h.newTCPProber(spec.TCPSocket)
	case spec.GRPC != nil:
		name = "grpc"
		prober, err = h.newGRPCProber(spec.GRPC)
	default:
		name, err = "handler", errors.New("is none of exec, httpGet, tcpSocket and grpc")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
		return newFailingProber(err), err
	}
	return newPodProber(prober, h.podIP), nil
}

// needsIP reports whether the probe in spec connects to the pod IP.
func needsIP(spec *corev1.Probe) bool {
	switch {
	case spec.Exec != nil:
		return false
	case spec.HTTPGet != nil:
		return spec.HTTPGet.Host == ""
	case spec.TCPSocket != nil:
		return spec.TCPSocket.Host == ""
	}
	return spec.GRPC != nil
}

// newExecProber creates the prober for an exec probe, with references such as $(NAME) to the container's env in the command.
func (h proberBuilder) newExecProber(action *corev1.ExecAction) (probe.Prober, error) {
	if h.options.Execer == nil {
		return nil, errors.New("exec probes are not supported: podprobe.Options.Execer is nil")
	}
	environment := make(map[string]string, len(h.container.Env))
	for i := range h.container.Env {
		environment[h.container.Env[i].Name] = h.container.Env[i].Value // empty for valueFrom
	}
	lookup := func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}
	command, err := expand.Command(action.Command, field.NewPath("command"), lookup)
	if err != nil {
		return nil, err
	}
	return probe.NewExec(h.options.Execer, probe.ExecConfig{ContainerID: h.containerID, Command: command})
}

func (h proberBuilder) newHTTPProber(action *corev1.HTTPGetAction) (probe.Prober, error) {
	port, err := h.resolvePort(action.Port)
	if err != nil {
		return nil, err
	}
	cfg := httpprobe.Config{
		Host: cmp.Or(action.Host, h.podIP), Port: port, Scheme: string(action.Scheme), Path: action.Path,
		Pool: h.options.Pool, FreshConnections: h.options.FreshConnections,
	}
	for _, header := range action.HTTPHeaders {
		cfg.Header = append(cfg.Header, httpprobe.Header{Name: header.Name, Value: header.Value})
	}
	return httpprobe.New(cfg)
}

func (h proberBuilder) newTCPProber(action *corev1.TCPSocketAction) (probe.Prober, error) {
	port, err := h.resolvePort(action.Port)
	if err != nil {
		return nil, err
	}
	return probe.NewTCP(probe.TCPConfig{Host: cmp.Or(action.Host, h.podIP), Port: port})
}

func (h proberBuilder) newGRPCProber(action *corev1.GRPCAction) (probe.Prober, error) {
	if h.options.GRPC == nil {
		return nil, errors.New("gRPC probes are not supported: podprobe.Options.GRPC is nil")
	}
	cfg := GRPCConfig{Host: h.podIP, Port: int(action.Port)}
	if action.Service != nil {
		cfg.Service = *action.Service
	}
	cfg.TLS = action.Mode != nil && *action.Mode == corev1.GRPCProbeModeTLS
	return h.options.GRPC(cfg)
}

// resolvePort returns the port number for p, which is a number or the name of a port of the container.
func (h proberBuilder) resolvePort(p intstr.IntOrString) (int, error) {
	port := int(p.IntVal)
	if p.Type == intstr.String {
		i := slices.IndexFunc(h.container.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.StrVal })
		if i < 0 {
			return 0, fmt.Errorf("field Port: %q names no port of the container", p.StrVal)
		}
		port = int(h.container.Ports[i].ContainerPort)
	}
	if port < 1 || port > 65535 {
		return 0, fmt.Errorf("field Port: %d is not from 1 to 65535", port)
	}
	return port, nil
}
