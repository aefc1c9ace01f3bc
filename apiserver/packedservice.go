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
	b := appendAddress(room[:0], o.Spec.ClusterIP)
	for _, p := range o.Spec.Ports {
		b = appendText(b, p.Name)
		known := slices.Index(packedProtocols, p.Protocol) + 1
		if b = append(b, byte(known)); known == 0 {
			b = appendText(b, string(p.Protocol))
		}
		b = binary.AppendUvarint(b, uint64(uint32(p.Port))) //nolint:gosec // a negative one comes back as it was
	}
	return packedService(b)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// packAddress packs the bytes of an address if they say how it is written.
func appendAddress(b []byte, text string) []byte {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.String() == text {
		raw := a.AsSlice()
		return append(append(b, byte(len(raw))), raw...)
	}
	return appendText(append(b, 0), text)
}

// unpack returns the service of a name.
func (p packedService) unpackService(name string) service {
	r := packReader(p)
	s := service{Name: name, IP: r.readAddress(), Ports: []servicePort{}}
	for len(r) > 0 {
		s.Ports = append(s.Ports, servicePort{Name: r.readText(), Protocol: r.readProtocol(), Port: r.readPort()})
	}
	return s
}

// packReader is the rest of what packService made.
type packReader []byte

func (r *packReader) takeBytes(n int) []byte {
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken
}

func (r *packReader) readText() string {
	length, n := binary.Uvarint(*r)
	r.takeBytes(n)
	return string(r.takeBytes(int(length))) //nolint:gosec // it was an int
}

func (r *packReader) readAddress() string {
	if n := r.takeBytes(1)[0]; n > 0 {
		a, _ := netip.AddrFromSlice(r.takeBytes(int(n))) // they are of one
		return a.String()
	}
	return r.readText()
}

func (r *packReader) readProtocol() corev1.Protocol {
	if known := r.takeBytes(1)[0]; known > 0 {
		return packedProtocols[known-1]
	}
	return corev1.Protocol(r.readText())
}

func (r *packReader) readPort() int32 {
	number, n := binary.Uvarint(*r)
	r.takeBytes(n)
	return int32(number) //nolint:gosec // it was one
}
