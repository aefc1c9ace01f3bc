// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/binary"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// packedService is what is kept of a service but its name, which is in the table's key: the address, then name, protocol and number of
// each port. A text has its length before it, an address the number of its bytes, or 0 before a text. So a service of two ports takes 24
// bytes that point to nothing: a cluster has thousands of services, and every node all of them.
type packedService string

// packedProtocols have numbers from 1; 0 is before the text of another one.
var packedProtocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} //nolint:gochecknoglobals // only read

func packService(o *corev1.Service) packedService {
	var room [256]byte // more than most services need
	b := packAddress(room[:0], o.Spec.ClusterIP)
	for _, p := range o.Spec.Ports {
		b = packText(b, p.Name)
		known := slices.Index(packedProtocols, p.Protocol) + 1
		if b = append(b, byte(known)); known == 0 {
			b = packText(b, string(p.Protocol))
		}
		b = binary.AppendUvarint(b, uint64(uint32(p.Port))) //nolint:gosec // a negative one comes back as it was
	}
	return packedService(b)
}

func packText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// packAddress packs the bytes of an address if they say how it is written.
func packAddress(b []byte, text string) []byte {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.String() == text {
		raw := a.AsSlice()
		return append(append(b, byte(len(raw))), raw...)
	}
	return packText(append(b, 0), text)
}

// unpack returns the service of a name.
func (p packedService) unpack(name string) service {
	r := packReader(p)
	s := service{Name: name, IP: r.address(), Ports: []servicePort{}}
	for len(r) > 0 {
		s.Ports = append(s.Ports, servicePort{Name: r.text(), Protocol: r.protocol(), Port: r.number()})
	}
	return s
}

// packReader is the rest of what packService made.
type packReader []byte

func (r *packReader) take(n int) []byte {
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken
}

func (r *packReader) text() string {
	length, n := binary.Uvarint(*r)
	r.take(n)
	return string(r.take(int(length))) //nolint:gosec // it was an int
}

func (r *packReader) address() string {
	if n := r.take(1)[0]; n > 0 {
		a, _ := netip.AddrFromSlice(r.take(int(n))) // they are of one
		return a.String()
	}
	return r.text()
}

func (r *packReader) protocol() corev1.Protocol {
	if known := r.take(1)[0]; known > 0 {
		return packedProtocols[known-1]
	}
	return corev1.Protocol(r.text())
}

func (r *packReader) number() int32 {
	number, n := binary.Uvarint(*r)
	r.take(n)
	return int32(number) //nolint:gosec // it was one
}
