// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

// The frame format of HTTP/2: RFC 9113, section 4.1.
const (
	frameHeader   = 9 // bytes: length (3), type, flags, stream (4)
	dataFrameType = 0
)

// frameCounter counts the bytes of responses in a stream of HTTP/2 frames.
type frameCounter struct {
	header    [frameHeader]byte
	have      int  // bytes of header that were read
	remaining int  // bytes of the current frame after its header
	data      bool // the current frame is a DATA frame
}

// countData returns the number of bytes in p, the next part of the stream, that are the payload of DATA frames.
func (f *frameCounter) countData(p []byte) (count int) {
	for len(p) > 0 {
		if f.remaining > 0 {
			n := min(f.remaining, len(p))
			if f.data {
				count += n
			}
			f.remaining -= n
			p = p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have == frameHeader {
			f.have = 0
			f.remaining = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.data = f.header[3] == dataFrameType
		}
	}
	return count
}
