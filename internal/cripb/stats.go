// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeContainerStats encodes the usage of a container.
func EncodeContainerStats(s *cri.ContainerStats) *v1.ContainerStats {
	p := &v1.ContainerStats{
		Attributes: &v1.ContainerAttributes{
			Id:          s.ID,
			Metadata:    &v1.ContainerMetadata{Name: s.Name, Attempt: s.Attempt},
			Labels:      s.Labels,
			Annotations: s.Annotations,
		},
		Cpu:    encodeCPU(s.CPU),
		Memory: encodeMemory(s.Memory),
		Io:     encodeIO(s.IO),
	}
	if u := s.Swap; u != nil {
		p.Swap = &v1.SwapUsage{
			Timestamp:          encodeTime(u.Time),
			SwapAvailableBytes: encodeUint64(u.AvailableBytes),
			SwapUsageBytes:     encodeUint64(u.UsageBytes),
		}
	}
	if s.WritableLayer != nil {
		p.WritableLayer = encodeFilesystem(s.WritableLayer)
	}
	return p
}

// DecodeContainerStats decodes the usage of a container.
func DecodeContainerStats(p *v1.ContainerStats) cri.ContainerStats {
	a := p.GetAttributes()
	s := cri.ContainerStats{
		ID:          a.GetId(),
		Name:        a.GetMetadata().GetName(),
		Attempt:     a.GetMetadata().GetAttempt(),
		Labels:      a.GetLabels(),
		Annotations: a.GetAnnotations(),
		CPU:         decodeCPU(p.GetCpu()),
		Memory:      decodeMemory(p.GetMemory()),
		IO:          decodeIO(p.GetIo()),
	}
	if u := p.GetSwap(); u != nil {
		s.Swap = &cri.SwapUsage{
			Time:           decodeTime(u.GetTimestamp()),
			AvailableBytes: decodeUint64(u.GetSwapAvailableBytes()),
			UsageBytes:     decodeUint64(u.GetSwapUsageBytes()),
		}
	}
	if u := p.GetWritableLayer(); u != nil {
		layer := decodeFilesystem(u)
		s.WritableLayer = &layer
	}
	return s
}

// EncodeSandboxStats encodes the usage of a sandbox.
func EncodeSandboxStats(s *cri.SandboxStats) *v1.PodSandboxStats {
	p := &v1.PodSandboxStats{
		Attributes: &v1.PodSandboxAttributes{
			Id:          s.ID,
			Metadata:    encodeSandboxMetadata(s.Pod, s.Attempt),
			Labels:      s.Labels,
			Annotations: s.Annotations,
		},
		Linux: &v1.LinuxPodSandboxStats{
			Cpu:        encodeCPU(s.CPU),
			Memory:     encodeMemory(s.Memory),
			Network:    encodeNetwork(s.Network),
			Io:         encodeIO(s.IO),
			Containers: mapSlicePtr(s.Containers, EncodeContainerStats),
		},
	}
	if s.Processes != nil {
		p.Linux.Process = &v1.ProcessUsage{ProcessCount: encodeUint64(s.Processes)}
	}
	return p
}

// DecodeSandboxStats decodes the usage of a sandbox.
func DecodeSandboxStats(p *v1.PodSandboxStats) cri.SandboxStats {
	a, linux := p.GetAttributes(), p.GetLinux()
	return cri.SandboxStats{
		ID:          a.GetId(),
		Pod:         decodeIdentity(a.GetMetadata()),
		Attempt:     a.GetMetadata().GetAttempt(),
		Labels:      a.GetLabels(),
		Annotations: a.GetAnnotations(),
		CPU:         decodeCPU(linux.GetCpu()),
		Memory:      decodeMemory(linux.GetMemory()),
		Network:     decodeNetwork(linux.GetNetwork()),
		IO:          decodeIO(linux.GetIo()),
		Processes:   decodeUint64(linux.GetProcess().GetProcessCount()),
		Containers:  mapSlice(linux.GetContainers(), DecodeContainerStats),
	}
}

func encodeCPU(u *cri.CPUUsage) *v1.CpuUsage {
	if u == nil {
		return nil
	}
	return &v1.CpuUsage{
		Timestamp:            encodeTime(u.Time),
		UsageCoreNanoSeconds: encodeUint64(u.UsageCoreNanoSeconds),
		UsageNanoCores:       encodeUint64(u.UsageNanoCores),
		Psi:                  encodePSI(u.PSI),
	}
}

func decodeCPU(p *v1.CpuUsage) *cri.CPUUsage {
	if p == nil {
		return nil
	}
	return &cri.CPUUsage{
		Time:                 decodeTime(p.GetTimestamp()),
		UsageCoreNanoSeconds: decodeUint64(p.GetUsageCoreNanoSeconds()),
		UsageNanoCores:       decodeUint64(p.GetUsageNanoCores()),
		PSI:                  decodePSI(p.GetPsi()),
	}
}

func encodeMemory(u *cri.MemoryUsage) *v1.MemoryUsage {
	if u == nil {
		return nil
	}
	return &v1.MemoryUsage{
		Timestamp:       encodeTime(u.Time),
		WorkingSetBytes: encodeUint64(u.WorkingSetBytes),
		AvailableBytes:  encodeUint64(u.AvailableBytes),
		UsageBytes:      encodeUint64(u.UsageBytes),
		RssBytes:        encodeUint64(u.RSSBytes),
		PageFaults:      encodeUint64(u.PageFaults),
		MajorPageFaults: encodeUint64(u.MajorPageFaults),
		Psi:             encodePSI(u.PSI),
	}
}

func decodeMemory(p *v1.MemoryUsage) *cri.MemoryUsage {
	if p == nil {
		return nil
	}
	return &cri.MemoryUsage{
		Time:            decodeTime(p.GetTimestamp()),
		WorkingSetBytes: decodeUint64(p.GetWorkingSetBytes()),
		AvailableBytes:  decodeUint64(p.GetAvailableBytes()),
		UsageBytes:      decodeUint64(p.GetUsageBytes()),
		RSSBytes:        decodeUint64(p.GetRssBytes()),
		PageFaults:      decodeUint64(p.GetPageFaults()),
		MajorPageFaults: decodeUint64(p.GetMajorPageFaults()),
		PSI:             decodePSI(p.GetPsi()),
	}
}

func encodeIO(u *cri.IOUsage) *v1.IoUsage {
	if u == nil {
		return nil
	}
	return &v1.IoUsage{Timestamp: encodeTime(u.Time), Psi: encodePSI(u.PSI)}
}

func decodeIO(p *v1.IoUsage) *cri.IOUsage {
	if p == nil {
		return nil
	}
	return &cri.IOUsage{Time: decodeTime(p.GetTimestamp()), PSI: decodePSI(p.GetPsi())}
}

func encodePSI(s *cri.PSI) *v1.PsiStats {
	if s == nil {
		return nil
	}
	return &v1.PsiStats{Some: encodePSIData(s.Some), Full: encodePSIData(s.Full)}
}

func decodePSI(p *v1.PsiStats) *cri.PSI {
	if p == nil {
		return nil
	}
	return &cri.PSI{Some: decodePSIData(p.GetSome()), Full: decodePSIData(p.GetFull())}
}

func encodePSIData(d cri.PSIData) *v1.PsiData {
	return &v1.PsiData{Total: uint64(d.Total.Nanoseconds()), Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
}

func decodePSIData(p *v1.PsiData) cri.PSIData {
	return cri.PSIData{
		Total:  time.Duration(p.GetTotal()) * time.Nanosecond,
		Avg10:  p.GetAvg10(),
		Avg60:  p.GetAvg60(),
		Avg300: p.GetAvg300(),
	}
}

func encodeNetwork(u *cri.NetworkUsage) *v1.NetworkUsage {
	if u == nil {
		return nil
	}
	p := &v1.NetworkUsage{Timestamp: encodeTime(u.Time), Interfaces: mapSlicePtr(u.Interfaces, encodeInterface)}
	if u.Default != nil {
		p.DefaultInterface = encodeInterface(u.Default)
	}
	return p
}

func decodeNetwork(p *v1.NetworkUsage) *cri.NetworkUsage {
	if p == nil {
		return nil
	}
	u := &cri.NetworkUsage{Time: decodeTime(p.GetTimestamp()), Interfaces: mapSlice(p.GetInterfaces(), decodeInterface)}
	if p.GetDefaultInterface() != nil {
		i := decodeInterface(p.GetDefaultInterface())
		u.Default = &i
	}
	return u
}

func encodeInterface(u *cri.InterfaceUsage) *v1.NetworkInterfaceUsage {
	return &v1.NetworkInterfaceUsage{
		Name:     u.Name,
		RxBytes:  encodeUint64(u.RxBytes),
		RxErrors: encodeUint64(u.RxErrors),
		TxBytes:  encodeUint64(u.TxBytes),
		TxErrors: encodeUint64(u.TxErrors),
	}
}

func decodeInterface(p *v1.NetworkInterfaceUsage) cri.InterfaceUsage {
	return cri.InterfaceUsage{
		Name:     p.GetName(),
		RxBytes:  decodeUint64(p.GetRxBytes()),
		RxErrors: decodeUint64(p.GetRxErrors()),
		TxBytes:  decodeUint64(p.GetTxBytes()),
		TxErrors: decodeUint64(p.GetTxErrors()),
	}
}
