// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/podfield"
)

// validateProbes checks the probes of a regular container or sidecar.
func validateProbes(container podfield.Container) field.ErrorList {
	var errs field.ErrorList
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{
		{"livenessProbe", container.LivenessProbe},
		{"readinessProbe", container.ReadinessProbe},
		{"startupProbe", container.StartupProbe},
	} {
		if p.probe == nil {
			continue
		}
		path := container.Path.Child(p.name)
		errs = append(errs, validateProbe(p.probe, path)...)
		switch grace := p.probe.TerminationGracePeriodSeconds; {
		case p.probe == container.ReadinessProbe && grace != nil:
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must not be set, as the probe ends no container"))
		case p.probe != container.ReadinessProbe && p.probe.SuccessThreshold != 1:
			errs = append(errs, field.Invalid(path.Child("successThreshold"), p.probe.SuccessThreshold, "must be 1"))
		}
	}
	return errs
}

func validateProbe(probe *corev1.Probe, path *field.Path) field.ErrorList {
	h := handler{Exec: probe.Exec, HTTPGet: probe.HTTPGet, TCPSocket: probe.TCPSocket, GRPC: probe.GRPC}
	errs := h.validate(nil, path)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds},
		{"timeoutSeconds", probe.TimeoutSeconds},
		{"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold},
		{"failureThreshold", probe.FailureThreshold},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.value), path.Child(f.name))...)
	}
	if grace := probe.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

// validateLifecycle checks the lifecycle hooks and the stop signal of a regular container or sidecar.
func validateLifecycle(pod *corev1.Pod, container podfield.Container) field.ErrorList {
	if container.Lifecycle == nil {
		return nil
	}
	var errs field.ErrorList
	path := container.Path.Child("lifecycle")
	if h := container.Lifecycle.PostStart; h != nil {
		errs = append(errs, hook(h).validate(pod.Spec.TerminationGracePeriodSeconds, path.Child("postStart"))...)
	}
	if h := container.Lifecycle.PreStop; h != nil {
		errs = append(errs, hook(h).validate(pod.Spec.TerminationGracePeriodSeconds, path.Child("preStop"))...)
	}
	if s := container.Lifecycle.StopSignal; s != nil {
		errs = append(errs, validateStopSignal(pod, *s, path.Child("stopSignal"))...)
	}
	return errs
}

// handler is the action of a probe or lifecycle hook. Exactly one field must be set.
type handler struct {
	Exec      *corev1.ExecAction
	HTTPGet   *corev1.HTTPGetAction
	TCPSocket *corev1.TCPSocketAction
	GRPC      *corev1.GRPCAction
	Sleep     *corev1.SleepAction
}

func hook(h *corev1.LifecycleHandler) handler {
	return handler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket, Sleep: h.Sleep}
}

// validate checks that the handler has exactly one action, and that it is valid. grace is the pod's grace period in seconds,
// if any.
func (h handler) validate(grace *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, one := range []struct {
		name  string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{"exec", h.Exec != nil, h.validateExec},
		{"httpGet", h.HTTPGet != nil, h.validateHTTPGet},
		{"tcpSocket", h.TCPSocket != nil, h.validateTCPSocket},
		{"grpc", h.GRPC != nil, h.validateGRPC},
		{"sleep", h.Sleep != nil, func(path *field.Path) field.ErrorList { return h.validateSleep(grace, path) }},
	} {
		switch {
		case !one.set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(one.name), "may not be set beside another handler"))
		default:
			found = true
			errs = append(errs, one.check(path.Child(one.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(path, "must have a handler"))
	}
	return errs
}

func (h handler) validateExec(path *field.Path) field.ErrorList {
	if len(h.Exec.Command) == 0 {
		return field.ErrorList{field.Required(path.Child("command"), "")}
	}
	return nil
}

func (h handler) validateHTTPGet(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	a := h.HTTPGet
	if a.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, validatePort(a.Port, path.Child("port"))...)
	errs = append(errs, validateOneOf(path.Child("scheme"), a.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for i, header := range a.HTTPHeaders {
		errs = append(errs, validateWith(path.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)...)
	}
	if a.Protocol == nil {
		return errs
	}
	errs = append(errs, validateOneOf(path.Child("protocol"), *a.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)...)
	if *a.Protocol == corev1.HTTPProtocolHTTP2 {
		if a.Scheme != corev1.URISchemeHTTP {
			errs = append(errs, field.Invalid(path.Child("protocol"), *a.Protocol, "needs scheme HTTP"))
		} else if a.Host != "" {
			errs = append(errs, field.Invalid(path.Child("host"), a.Host, "must be empty with protocol HTTP2"))
		}
	}
	return errs
}

func (h handler) validateTCPSocket(path *field.Path) field.ErrorList {
	return validatePort(h.TCPSocket.Port, path.Child("port"))
}

func (h handler) validateGRPC(path *field.Path) field.ErrorList {
	errs := validatePort(intstr.FromInt32(h.GRPC.Port), path.Child("port"))
	if m := h.GRPC.Mode; m != nil {
		errs = append(errs, validateOneOf(path.Child("mode"), *m, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)...)
	}
	return errs
}

// validateSleep checks that a sleep is from zero to the grace period of the pod in seconds.
func (h handler) validateSleep(grace *int64, path *field.Path) field.ErrorList {
	// Validate already reports a missing grace period.
	if s := h.Sleep.Seconds; grace != nil && (s < 0 || s > *grace) {
		return field.ErrorList{field.Invalid(path, s, fmt.Sprintf("must be from 0 to the pod's grace period of %d s", *grace))}
	}
	return nil
}

// validatePort checks that a port is a valid number or name. It does not check that the container has a port of this name.
func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return validateWith(path, port.StrVal, validation.IsValidPortName)
	}
	return validateWith(path, int(port.IntVal), validation.IsValidPortNum)
}
