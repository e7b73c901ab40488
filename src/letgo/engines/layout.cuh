#define D 128

// A layer's parameters in the flat vector (Shape in blocks.py); the width is 128.
#define WQKV 0
#define WO (3 * D * D)
#define W1 (4 * D * D)
#define W2 (W1 + HIDDEN * D)
#define BQKV (W2 + HIDDEN * D)
#define BO (BQKV + 3 * D)
#define B1 (BO + D)
#define B2 (B1 + HIDDEN)
#define GAIN1 (B2 + D)
#define SHIFT1 (GAIN1 + D)
#define GAIN2 (SHIFT1 + D)
#define SHIFT2 (GAIN2 + D)
