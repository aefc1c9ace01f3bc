// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestProbeTCP(t *testing.T) {
	open := listenRaw(t, func(net.Conn) {})
	ports := []corev1.ContainerPort{{Name: "web", ContainerPort: int32(open)}, {Name: "zero"}, {Name: "web", ContainerPort: 1}}
	tcp := func(host string, port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host, Port: port}}
	}
	refused := func(text string) probeOutcome {
		return probeOutcome{Outcome: "failure", Output: "tcpSocket: field " + text}
	}
	const unasked = "an invalid port is a failure; the kubelet discards the probe"
	runProbeCases(t, []probeCase{
		{name: "open", handler: tcp("", intstr.FromInt(open))},
		{name: "open by name", handler: tcp("", intstr.FromString("web")), ports: ports},
		{name: "host", handler: tcp("localhost", intstr.FromInt(open))},
		{name: "closed", handler: tcp("", intstr.FromInt(closedPort(t)))},
		{name: "full backlog", handler: tcp("", intstr.FromInt(fullBacklog(t))), timeout: 300 * time.Millisecond},
		{
			name: "no such name", handler: tcp("", intstr.FromString("none")), ports: ports,
			meant: unasked, want: refused(`Port: "none" names no port of the container`),
		},
		{
			name: "named zero", handler: tcp("", intstr.FromString("zero")), ports: ports,
			meant: unasked, want: refused("Port: 0 is not from 1 to 65535"),
		},
		{
			name: "zero", handler: tcp("", intstr.FromInt32(0)),
			meant: unasked, want: refused("Port: 0 is not from 1 to 65535"),
		},
		{
			name: "too large", handler: tcp("", intstr.FromInt32(65536)),
			meant: unasked, want: refused("Port: 65536 is not from 1 to 65535"),
		},
		{
			name: "bad host", handler: tcp("a b", intstr.FromInt(open)),
			meant: "an invalid host is detected when the prober is created; the kubelet resolves it for each probe",
			want:  refused(`Host: "a b" is neither a name nor an IP address`),
		},
	})
}
