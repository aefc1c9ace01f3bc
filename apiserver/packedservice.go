// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/binary"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// packedService is the compact encoding of a service without its name, which is the key of its table row. It holds the cluster
// IP, then name, protocol and number of each port. Strings are prefixed by their length. A service of two ports takes 24 bytes
// without pointers: each node holds thousands of services.
type packedService string

// packedProtocols are encoded as their index plus one. Zero precedes the text of any other protocol.
var packedProtocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} //nolint:gochecknoglobals // only read

func packService(service *corev1.Service) packedService {
	var room [256]byte // more than most services need
	b := appendAddress(room[:0], service.Spec.ClusterIP)
	for _, p := range service.Spec.Ports {
		b = appendText(b, p.Name)
		known := slices.Index(packedProtocols, p.Protocol) + 1
		if b = append(b, byte(known)); known == 0 {
			b = appendText(b, string(p.Protocol))
		}
		b = binary.AppendUvarint(b, uint64(uint32(p.Port))) // a negative number is decoded unchanged
	}
	return packedService(b)
}

func appendText(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}

// appendAddress appends an IP address to buffer: in binary form, or as text if the binary form would lose something.
func appendAddress(buffer []byte, text string) []byte {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.String() == text {
		raw := a.AsSlice()
		return append(append(buffer, byte(len(raw))), raw...)
	}
	return appendText(append(buffer, 0), text)
}

// unpackService returns the service with that name.
func (p packedService) unpackService(name string) service {
	r := packReader(p)
	s := service{Name: name, IP: r.readAddress(), Ports: []servicePort{}}
	for len(r) > 0 {
		s.Ports = append(s.Ports, servicePort{Name: r.readText(), Protocol: r.readProtocol(), Port: r.readPort()})
	}
	return s
}

// packReader is the remaining input of unpackService.
type packReader []byte

// takeBytes returns the next n bytes and removes them from r.
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
		a, _ := netip.AddrFromSlice(r.takeBytes(int(n))) // the length is that of an address
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
