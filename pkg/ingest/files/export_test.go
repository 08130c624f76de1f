package files

func (f *Folder) Marker() (int64, error) { return f.marker() }
