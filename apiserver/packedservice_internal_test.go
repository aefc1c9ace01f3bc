// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Any service of an API server is unpacked unchanged.
func FuzzPackedService(f *testing.F) {
	f.Add("10.0.0.1", "http", "TCP", int32(80), "metrics", "UDP", int32(65535))
	f.Add("fd00::1", "", "SCTP", int32(0), "x", "", int32(-1))
	f.Add("::ffff:10.0.0.1", "a", "QUIC", int32(1), "b", "tcp", int32(1<<30))
	f.Add("FD00::1", "a", "TCP", int32(1), "a", "TCP", int32(1))
	f.Add("fe80::1%eth0", "a", "TCP", int32(1), "a", "TCP", int32(1))
	f.Add("", "", "", int32(0), "", "", int32(0))
	f.Add("010.0.0.1", "\x00\xff", "\xff", int32(0), "", "", int32(0))
	f.Fuzz(func(t *testing.T, ip, name1, protocol1 string, port1 int32, name2, protocol2 string, port2 int32) {
		ports := []corev1.ServicePort{
			{Name: name1, Protocol: corev1.Protocol(protocol1), Port: port1}, {Name: name2, Protocol: corev1.Protocol(protocol2), Port: port2},
		}
		for n := range len(ports) + 1 {
			o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports[:n]}}
			want := service{Name: "s", IP: ip, Ports: []servicePort{}}
			for _, p := range o.Spec.Ports {
				want.Ports = append(want.Ports, servicePort{p.Name, p.Protocol, p.Port})
			}
			require.Equal(t, want, packService(o).unpackService("s"))
		}
	})
}

func TestPackedServiceIsSmall(t *testing.T) {
	require.LessOrEqual(t, len(packService(serviceObject(9_999))), 24)
}
